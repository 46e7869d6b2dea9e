# Compiler options and output folders that hold for every target.
include(GNUInstallDirs)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "Build type" FORCE)
endif()

# One place for programs and one for libraries; in the source folder that is ./bin and ./lib.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_CXX_STANDARD 17)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

add_compile_definitions(_GNU_SOURCE)
add_compile_options(
  -Wall -Wextra -Wshadow -Wvla -Wundef -Wformat=2 -Wwrite-strings -Wpointer-arith
  $<$<COMPILE_LANGUAGE:C>:-Wstrict-prototypes>
  $<$<COMPILE_LANGUAGE:C>:-Wmissing-prototypes>
  $<$<COMPILE_LANGUAGE:C>:-Wold-style-definition>)
if(IBMSG_WERROR)
  add_compile_options(-Werror)
endif()

# A library is many small files: calls between them are to cost what calls within one do.
if(NOT IBMSG_SANITIZE AND NOT IBMSG_FUZZ AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  include(CheckIPOSupported)
  check_ipo_supported(RESULT IBMSG_HAS_IPO LANGUAGES C)
  set(CMAKE_INTERPROCEDURAL_OPTIMIZATION ${IBMSG_HAS_IPO})
endif()

if(IBMSG_SANITIZE)
  # Less optimised: compiling takes longer than what the tests gain.
  string(REPLACE "-O2 -g" "-O1 -g1" CMAKE_C_FLAGS_RELWITHDEBINFO "${CMAKE_C_FLAGS_RELWITHDEBINFO}")
  add_compile_options(-fsanitize=${IBMSG_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${IBMSG_SANITIZE})
  if(IBMSG_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()
if(IBMSG_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link -fprofile-instr-generate -fcoverage-mapping)
  add_link_options(-fprofile-instr-generate)
endif()

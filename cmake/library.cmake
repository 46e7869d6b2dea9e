# How a library of this project is built and installed: hidden visibility, a symbol map, a soname, pkg-config
# and a CMake package, and a proof that its public headers compile alone.
include(CMakePackageConfigHelpers)

# ibmsg_shared_library(NAME SOVERSION n MAP file [HEADERS ...] [DESCRIPTION text] [REQUIRES pc...] [USES library...])
# USES names libraries of this project that it needs.
# The target NAME exists already (its sources and links are its folder's own affair).
function(ibmsg_shared_library name)
  cmake_parse_arguments(ARG "" "SOVERSION;MAP;DESCRIPTION" "HEADERS;REQUIRES;USES" ${ARGN})
  set_target_properties(${name} PROPERTIES
    VERSION ${PROJECT_VERSION}
    SOVERSION ${ARG_SOVERSION}
    LINK_DEPENDS ${ARG_MAP})
  if(ARG_USES)
    # They are installed side by side: found there by the linker and at run time, wherever that is.
    set_target_properties(${name} PROPERTIES INSTALL_RPATH "$ORIGIN")
  endif()
  target_link_options(${name} PRIVATE
    -Wl,--version-script=${ARG_MAP} -Wl,-z,defs -Wl,-z,now -Wl,-z,relro)
  # A program may close a plug-in that links us. The device's thread and the destructors of threads' memory run on, so the code
  # must stay.
  target_link_options(${name} PRIVATE -Wl,-z,nodelete)
  if(IBMSG_SANITIZE MATCHES "address|thread" AND CMAKE_C_COMPILER_ID MATCHES "Clang")
    # clang leaves the sanitizer's symbols to the program.
    target_link_options(${name} PRIVATE -Wl,-z,undefs)
  endif()

  install(TARGETS ${name} EXPORT ${name}Targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  if(ARG_HEADERS)
    target_include_directories(${name} INTERFACE
      $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
    install(FILES ${ARG_HEADERS} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
    ibmsg_check_headers(${name} ${ARG_HEADERS})
  endif()

  set(PC_NAME ${name})
  set(PC_DESCRIPTION ${ARG_DESCRIPTION})
  list(JOIN ARG_REQUIRES " " PC_REQUIRES)
  # Relative, because the prefix is chosen when it is installed, and may be moved.
  file(RELATIVE_PATH PC_TO_PREFIX /p/${CMAKE_INSTALL_LIBDIR}/pkgconfig /p)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/library.pc.in lib${name}.pc @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/lib${name}.pc
    DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

  set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/${name})
  install(EXPORT ${name}Targets NAMESPACE ibmsg:: DESTINATION ${package_dir} FILE ${name}Targets.cmake)
  set(config "include(CMakeFindDependencyMacro)\n")
  foreach(library IN LISTS ARG_USES)
    string(APPEND config "find_dependency(${library})\n")
  endforeach()
  string(APPEND config "include(\"\${CMAKE_CURRENT_LIST_DIR}/${name}Targets.cmake\")\n")
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/${name}Config.cmake "${config}")
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}Config.cmake DESTINATION ${package_dir})
  write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/${name}ConfigVersion.cmake
    COMPATIBILITY SameMajorVersion)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/${name}ConfigVersion.cmake DESTINATION ${package_dir})
endfunction()

# Every public header compiles alone, as C11 and as C++17, without extensions.
function(ibmsg_check_headers name)
  set(sources "")
  foreach(header IN LISTS ARGN)
    get_filename_component(base ${header} NAME)
    get_filename_component(stem ${header} NAME_WE)
    foreach(language c cpp)
      set(source ${CMAKE_CURRENT_BINARY_DIR}/header_${stem}.${language})
      file(CONFIGURE OUTPUT ${source} CONTENT "#include <@base@>\n" @ONLY)
      list(APPEND sources ${source})
    endforeach()
  endforeach()
  add_library(${name}_headers_alone OBJECT ${sources})
  set_target_properties(${name}_headers_alone PROPERTIES C_EXTENSIONS OFF CXX_EXTENSIONS OFF)
  target_include_directories(${name}_headers_alone PRIVATE ${PROJECT_SOURCE_DIR}/include)
endfunction()

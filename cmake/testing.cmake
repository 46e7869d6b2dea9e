# One line per test. Labels: unit, integration, programs, packet, chaos, vm, fuzz, lint; slow runs with ./run test --full.
# A test skips with exit status 77 and says why.

# ibmsg_test(NAME LABEL label... [TIMEOUT s] COMMAND ...)
function(ibmsg_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "LABEL;COMMAND" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_test(NAME ${name} COMMAND ${ARG_COMMAND})
  set_tests_properties(${name} PROPERTIES
    LABELS "${ARG_LABEL}" TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77)
endfunction()

# ibmsg_unit_test(NAME SOURCES ... [LIBS ...]): one cmocka program for one source file that has logic.
function(ibmsg_unit_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  add_executable(test_${name} ${ARG_SOURCES})
  target_link_libraries(test_${name} PRIVATE ${ARG_LIBS} cmocka)
  set_target_properties(test_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin/tests)
  ibmsg_test(unit.${name} LABEL unit COMMAND test_${name})
endfunction()

# ibmsg_vm_test(NAME DEVICE rxe|siw [HOSTS 1|2] [PEER command] [TIMEOUT s] COMMAND ...): COMMAND in a guest with that device.
function(ibmsg_vm_test name)
  cmake_parse_arguments(ARG "" "DEVICE;HOSTS;PEER;TIMEOUT" "COMMAND" ${ARGN})
  set(options --device ${ARG_DEVICE})
  if(ARG_HOSTS)
    list(APPEND options --hosts ${ARG_HOSTS})
  endif()
  if(ARG_PEER)
    list(APPEND options --peer ${ARG_PEER})
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  # The guest gives up first, and says why.
  math(EXPR limit "${ARG_TIMEOUT} - 30")
  list(APPEND options --timeout ${limit})
  ibmsg_test(vm.${name} LABEL vm TIMEOUT ${ARG_TIMEOUT}
    COMMAND ${PROJECT_SOURCE_DIR}/tests/vm/guest ${options} -- ${ARG_COMMAND})
  # vm.prepare has the time to make the guest's kernel.
  set_tests_properties(vm.${name} PROPERTIES FIXTURES_REQUIRED guest_kernel)
endfunction()

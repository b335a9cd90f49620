# SPDX-License-Identifier: MIT
#
# cmake -DVERBENA=PROGRAM -DOUT=DIR -P pages.cmake: lets the program write its man pages, one a command, to DIR/man1, and
# its completion scripts to DIR/bash and DIR/zsh. A new command needs no change here.
function(vb_write path)
  execute_process(COMMAND ${VERBENA} ${ARGN} OUTPUT_FILE ${path} RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${VERBENA} ${ARGN} failed: ${result}")
  endif()
endfunction()

set(ENV{ASAN_OPTIONS} "$ENV{ASAN_OPTIONS}:detect_leaks=0") # the search for leaks takes seconds
file(REMOVE_RECURSE ${OUT})
file(MAKE_DIRECTORY ${OUT}/man1 ${OUT}/bash ${OUT}/zsh)
execute_process(COMMAND ${VERBENA} --help OUTPUT_VARIABLE help RESULT_VARIABLE result)
string(REGEX MATCHALL "\n  [a-z]+ +" commands "${help}")
if(NOT result EQUAL 0 OR NOT commands)
  message(FATAL_ERROR "${VERBENA} --help lists no commands: ${result}")
endif()
foreach(command IN LISTS commands)
  string(REGEX REPLACE "[\n ]" "" command "${command}")
  if(NOT command STREQUAL "verbena")
    vb_write(${OUT}/man1/verbena-${command}.1 ${command} --help-man)
  endif()
endforeach()
vb_write(${OUT}/bash/verbena completion bash)
vb_write(${OUT}/zsh/_verbena completion zsh)

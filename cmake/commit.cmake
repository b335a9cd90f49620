# SPDX-License-Identifier: MIT
#
# cmake -DTREE=DIR -DOUT=FILE -P commit.cmake: writes a header that defines VB_COMMIT, the commit of the tree. Runs in
# every build, because a commit needs no new configuration. The header is only touched if the commit has changed. In a
# tree that `git archive` made, commit.txt has the commit. If the commit is not known, VB_COMMIT is "".
set(commit "")
if(EXISTS ${TREE}/.git)
  execute_process(COMMAND git -C ${TREE} describe --always --exclude=* --abbrev=40 --dirty=-modified
                  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    set(commit "")
  endif()
else()
  file(STRINGS ${TREE}/cmake/commit.txt line LIMIT_COUNT 1)
  if(line MATCHES "^([0-9a-f]+) [0-9]+$")
    set(commit ${CMAKE_MATCH_1})
  endif()
endif()

set(text "#define VB_COMMIT \"${commit}\"\n")
set(old "")
if(EXISTS ${OUT})
  file(READ ${OUT} old)
endif()
if(NOT text STREQUAL old)
  file(WRITE ${OUT} "${text}")
endif()

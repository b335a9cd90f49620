# SPDX-License-Identifier: MIT
#
# vb_room(TARGET NAME [FLAGS ...] [LEVELS ...] [NO_FUZZ] SOURCES ...): adds the sources of a subfolder (a room) to a
# library. All sources of a subfolder get the same compiler flags, because flags can change the bits of a result. LEVELS
# are sources that are compiled once more for each instruction level. With NO_FUZZ, sources are not instrumented,
# because fuzzers do not run this code.
function(vb_room target name)
  cmake_parse_arguments(PARSE_ARGV 2 room "NO_FUZZ" "" "FLAGS;LEVELS;SOURCES")
  if(VB_FUZZ AND room_NO_FUZZ)
    list(APPEND room_FLAGS -fno-sanitize=all)
  endif()
  list(TRANSFORM room_SOURCES PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  list(TRANSFORM room_LEVELS PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
  target_sources(${target} PRIVATE ${room_SOURCES} ${room_LEVELS})
  set_source_files_properties(${room_SOURCES} ${room_LEVELS}
                              DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} TARGET_DIRECTORY ${target}
                              PROPERTIES COMPILE_OPTIONS "${room_FLAGS}")
  vb_levels(${target} ${name} ${room_LEVELS})
endfunction()

# vb_slow_to_check(TARGET SOURCES...): compiles these sources with less optimisation if AddressSanitizer is used,
# because gcc would take a minute to optimise its checks.
function(vb_slow_to_check target)
  if(VB_SANITIZE MATCHES "address" AND NOT VB_FUZZ)
    list(TRANSFORM ARGN PREPEND ${CMAKE_CURRENT_SOURCE_DIR}/)
    set_property(SOURCE ${ARGN} DIRECTORY ${CMAKE_CURRENT_SOURCE_DIR} TARGET_DIRECTORY ${target}
                 APPEND PROPERTY COMPILE_OPTIONS -O1)
  endif()
endfunction()

# SPDX-License-Identifier: MIT
#
# Compiler flags of the whole tree. No -march=native and no -ffast-math here: a kernel that wants
# one gets it for its own file.

add_compile_options(-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes)
add_compile_definitions(_GNU_SOURCE)
include_directories(${CMAKE_SOURCE_DIR})

# __FILE__ becomes "net/tcp.c": log lines name the folder and the file by it.
add_compile_options(-fmacro-prefix-map=${CMAKE_SOURCE_DIR}/=)

if(VB_WERROR)
  add_compile_options(-Werror)
endif()
if(VB_DEBUG)
  add_compile_definitions(VB_DEBUG=1)
endif()
if(VB_SANITIZE)
  add_compile_options(-fsanitize=${VB_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${VB_SANITIZE})
  if(CMAKE_C_COMPILER_ID MATCHES Clang)
    add_compile_options(-Wno-pass-failed) # a loop that a sanitizer keeps from becoming vectors
  endif()
endif()

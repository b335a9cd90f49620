# SPDX-License-Identifier: MIT
#
# Compiler flags of the whole tree. There is no -march=native and no -ffast-math: a kernel that
# needs such a flag gets it for its own file.

add_compile_options(-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes)
add_compile_options(-ffp-contract=off) # unless a folder asks for it: gcc and clang then agree
add_compile_definitions(_GNU_SOURCE)
include_directories(${CMAKE_SOURCE_DIR})

# __FILE__ becomes "net/tcp/tcp.c", so that log lines name the folder and the file.
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
    add_compile_options(-Wno-pass-failed) # sanitizers prevent vectorisation of some loops
  endif()
endif()

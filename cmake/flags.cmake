# SPDX-License-Identifier: MIT
#
# Compiler flags of the whole tree. -march=native and -ffast-math are not used. A kernel that needs
# other flags gets them for its own folder or file.

add_compile_options(-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes)
add_compile_options(-ffp-contract=off) # so that gcc and clang give the same results; some folders turn it on
add_compile_definitions(_GNU_SOURCE)
include_directories(${CMAKE_SOURCE_DIR})

# __FILE__ is the path relative to the top of the tree, such as "net/tcp/tcp.c", because log lines
# contain the folder and the file.
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

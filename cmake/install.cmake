# SPDX-License-Identifier: MIT
#
# Defines what `cmake --install build` installs: the command, its man pages and completion scripts, the
# libraries, their public headers and a pkg-config file. With these, users can build programs on our libraries.

# The order matters to the linker: a library comes before the libraries that it needs.
set(VB_LIBRARIES vb_engine vb_doctor vb_launch vb_models vb_data vb_record vb_net vb_kernels vb_topo vb_base)

install(TARGETS verbena RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS ${VB_LIBRARIES} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(FILES docs/verbena.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(DIRECTORY ${CMAKE_BINARY_DIR}/pages/man1/ DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${CMAKE_BINARY_DIR}/pages/bash/verbena
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${CMAKE_BINARY_DIR}/pages/zsh/_verbena
        DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions)
# Installs FOLDER/FOLDER.h of each library, and the headers of its subfolders that FOLDER.h
# includes.
foreach(library IN LISTS VB_LIBRARIES)
  string(REPLACE "vb_" "" folder ${library})
  file(STRINGS ${folder}/${folder}.h gathered REGEX "^#include \"${folder}/")
  list(TRANSFORM gathered REPLACE "^#include \"([^\"]*)\".*" "\\1")
  foreach(header IN ITEMS ${folder}/${folder}.h LISTS gathered)
    get_filename_component(place ${header} DIRECTORY)
    install(FILES ${header} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/verbena/${place})
  endforeach()
endforeach()

list(TRANSFORM VB_LIBRARIES PREPEND -l OUTPUT_VARIABLE VB_LINK)
list(JOIN VB_LINK " " VB_LINK)
# The prefix is relative to the .pc file, because --prefix may be given only at installation.
file(RELATIVE_PATH VB_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/verbena.pc.in verbena.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/verbena.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

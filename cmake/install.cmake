# What `cmake --install` puts where (GNUInstallDirs below the prefix), and the .deb that `cpack -G DEB` makes of it.
# Manual page and completions are written by the program itself when it is linked (src/app).
install(TARGETS deltafin RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
# The program finds them from its own place: ../share/deltafin/models.
install(DIRECTORY models/k3-nano models/k3-nano-dspark models/qwen3-nano DESTINATION ${CMAKE_INSTALL_DATADIR}/deltafin/models)
install(FILES README.md ARCHITECTURE.md CONTRIBUTING.md LICENSE THIRD_PARTY_NOTICES.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
# Where Debian looks for it.
install(FILES LICENSE RENAME copyright DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR})
set(WRITTEN ${PROJECT_BINARY_DIR}/written)
install(FILES ${WRITTEN}/deltafin.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${WRITTEN}/deltafin.bash RENAME deltafin
  DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES ${WRITTEN}/deltafin.fish DESTINATION ${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d)
# Debian's zsh looks elsewhere for what packages bring than for what is installed locally.
install(CODE "
  set(FOLDER site-functions)
  if(CMAKE_INSTALL_PREFIX MATCHES \"/usr/?$\")
    set(FOLDER vendor-completions)
  endif()
  file(INSTALL \"${WRITTEN}/_deltafin\" DESTINATION \"\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_DATADIR}/zsh/\${FOLDER}\")")
# Not enabled by being there.
install(FILES packaging/deltafin.service DESTINATION lib/systemd/system)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME deltafin)
set(CPACK_PACKAGE_VENDOR "Deltafin")
set(CPACK_PACKAGE_CONTACT "The Deltafin contributors")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "runs Kimi K3 on one machine, streaming its experts from disk")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/packaging/postinst ${PROJECT_SOURCE_DIR}/packaging/prerm
  ${PROJECT_SOURCE_DIR}/packaging/postrm)
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "Streams the 82,432 routed experts of Kimi K3 (2.8 trillion parameters) from SSDs, with every
 weight as released. A command line, a chat in the terminal, and a server with OpenAI's and Anthropic's
 APIs. Comes with a miniature model of the same architecture to try it with.")
string(REPLACE "\n " " " CPACK_DEBIAN_PACKAGE_DESCRIPTION "${CPACK_DEBIAN_PACKAGE_DESCRIPTION}")
include(CPack)

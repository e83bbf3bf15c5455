# Loom's part of what is installed: headers, both libraries, CMake and pkg-config files. The command is one of the programs
# of install.cmake.
set(LOOM_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/loom)

install(DIRECTORY include/loom DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS loom_shared loom_static EXPORT loom-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
set_target_properties(loom_shared PROPERTIES INSTALL_RPATH "$ORIGIN")  # libweft.so lies beside it
install(EXPORT loom-targets NAMESPACE loom:: DESTINATION ${LOOM_CMAKE_DIR})
configure_package_config_file(cmake/loom-config.cmake.in loom-config.cmake INSTALL_DESTINATION ${LOOM_CMAKE_DIR})
write_basic_package_version_file(loom-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/loom-config.cmake ${PROJECT_BINARY_DIR}/loom-config-version.cmake
        DESTINATION ${LOOM_CMAKE_DIR})
configure_file(cmake/loom.pc.in loom.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/loom.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

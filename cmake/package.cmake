# The Debian package (cpack -G DEB): what `cmake --install` installs, and what Debian's policy asks for besides.
set(DEBIAN ${PROJECT_BINARY_DIR}/debian)
string(TIMESTAMP RELEASED "%a, %d %b %Y %H:%M:%S +0000" UTC)  # of SOURCE_DATE_EPOCH, where that is set
set(LIBRARIES libweft)  # that other packages may link with
if(LOOM)
  list(APPEND LIBRARIES libloom)
endif()
list(TRANSFORM LIBRARIES APPEND " ${PROJECT_VERSION_MAJOR} weft (>= ${PROJECT_VERSION})" OUTPUT_VARIABLE SHLIBS)
list(JOIN SHLIBS "\n" SHLIBS)
foreach(file changelog shlibs)
  configure_file(cmake/debian/${file}.in ${DEBIAN}/${file} @ONLY)
endforeach()
execute_process(COMMAND gzip -9nf ${DEBIAN}/changelog COMMAND_ERROR_IS_FATAL ANY)
install(FILES ${DEBIAN}/changelog.gz cmake/debian/copyright DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT debian EXCLUDE_FROM_ALL)
install(FILES cmake/debian/overrides DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides RENAME weft COMPONENT debian
        EXCLUDE_FROM_ALL)

set(CPACK_INSTALL_CMAKE_PROJECTS "${PROJECT_BINARY_DIR};weft;ALL;/;${PROJECT_BINARY_DIR};weft;debian;/")
set(CPACK_PRE_BUILD_SCRIPTS ${PROJECT_SOURCE_DIR}/cmake/debian/prepare.cmake)
set(CPACK_PACKAGE_NAME weft)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "collective communication and distributed training on cloud networks")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "Weft is a library of collectives for training clusters on commodity
networks, in host and GPU memory, with a plugin for NCCL and tools that
measure and simulate. Loom trains transformer models over it.")
set(CPACK_PACKAGE_CONTACT "The Weft developers <weft@weft.invalid>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR DEB)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
# Written by hand: CPack would offer the private libnccl.so.2 to other packages, and call ldconfig by scripts.
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${DEBIAN}/shlibs ${PROJECT_SOURCE_DIR}/cmake/debian/triggers)
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libfabric1, libpmix2")  # opened at run time
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libhwloc-dev, libfmt-dev, libdnnl-dev, libicu-dev")  # to link the static libraries
include(CPack)

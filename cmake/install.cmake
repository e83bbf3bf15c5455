# What `cmake --install` and the Debian package contain: headers, both libraries, CMake and pkg-config files, tools, pages.
# Nothing in it names the prefix, so the tree can be moved.
include(CMakePackageConfigHelpers)
set(WEFT_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/weft)

install(FILES include/weft/weft.h include/weft/weft_cuda.h include/weft/weft_forecast.h include/weft/weft_mpi.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weft)
install(TARGETS weft weft_static EXPORT weft-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT weft-targets NAMESPACE weft:: DESTINATION ${WEFT_CMAKE_DIR})
configure_package_config_file(cmake/weft-config.cmake.in weft-config.cmake INSTALL_DESTINATION ${WEFT_CMAKE_DIR})
write_basic_package_version_file(weft-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/weft-config.cmake ${PROJECT_BINARY_DIR}/weft-config-version.cmake
        DESTINATION ${WEFT_CMAKE_DIR})

file(RELATIVE_PATH WEFT_PC_TO_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" WEFT_PC_TO_PREFIX "${WEFT_PC_TO_PREFIX}")
get_target_property(dependencies weft_static INTERFACE_LINK_LIBRARIES)
list(TRANSFORM dependencies PREPEND -l OUTPUT_VARIABLE WEFT_PC_PRIVATE)
list(JOIN WEFT_PC_PRIVATE " " WEFT_PC_PRIVATE)
configure_file(cmake/weft.pc.in weft.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/weft.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

if(LOOM)
  include(${PROJECT_SOURCE_DIR}/cmake/install_loom.cmake)
endif()

# Every program that was built, finding the library beside it wherever the tree is put.
file(RELATIVE_PATH to_libraries /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
get_property(programs GLOBAL PROPERTY WEFT_PROGRAMS)
foreach(program ${programs})
  set_target_properties(${program} PROPERTIES INSTALL_RPATH "$ORIGIN/${to_libraries}")
endforeach()
install(TARGETS ${programs} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY clusters DESTINATION ${CMAKE_INSTALL_DATADIR}/weft FILES_MATCHING PATTERN "*.json")

# Manual pages, made of what the programs say with --help. Sanitized programs are not installed, and may not start everywhere.
if(NOT WEFT_SANITIZE)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/man)
  set(manual_pages "")
  foreach(program ${programs})
    get_target_property(name ${program} OUTPUT_NAME)
    if(NOT name)
      set(name ${program})
    endif()
    set(page ${PROJECT_BINARY_DIR}/man/${name}.1.gz)
    add_custom_command(
      OUTPUT ${page}
      COMMAND ${PROJECT_SOURCE_DIR}/cmake/manual_page.sh $<TARGET_FILE:${program}> ${page}
      DEPENDS ${program} ${PROJECT_SOURCE_DIR}/cmake/manual_page.sh
      VERBATIM)
    list(APPEND manual_pages ${page})
  endforeach()
  add_custom_target(manual_pages ALL DEPENDS ${manual_pages})
  install(FILES ${manual_pages} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
endif()

install(FILES README.md CHANGELOG.md CONTRIBUTING.md SECURITY.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY docs examples DESTINATION ${CMAKE_INSTALL_DOCDIR})

include(${PROJECT_SOURCE_DIR}/cmake/package.cmake)

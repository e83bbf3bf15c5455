# Run by CPack on what it has installed, before it makes the package: in /usr the loader finds our libraries by itself, so no
# program says where they are.
set(usr ${CPACK_TEMPORARY_INSTALL_DIRECTORY}/usr)
file(GLOB binaries ${usr}/bin/* ${usr}/lib/lib*.so* ${usr}/lib/*/lib*.so*)
foreach(binary ${binaries})
  if(NOT IS_SYMLINK ${binary})
    file(RPATH_REMOVE FILE ${binary})
  endif()
endforeach()

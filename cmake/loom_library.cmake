# libloom.so and libloom.a out of all layers: nothing but what include/loom declares is visible in either. As library.cmake
# does it for Weft.

# Shared: all of the archive, though nothing refers to it yet.
set(LOOM_EXPORTS ${PROJECT_SOURCE_DIR}/cmake/loom.map)
file(CONFIGURE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/loom_shared.cc CONTENT "")  # as old as it is, unlike WRITE
add_library(loom_shared SHARED ${CMAKE_CURRENT_BINARY_DIR}/loom_shared.cc)
add_dependencies(loom_shared loom)
target_link_options(loom_shared PRIVATE LINKER:--version-script=${LOOM_EXPORTS}
                                        LINKER:--whole-archive $<TARGET_FILE:loom> LINKER:--no-whole-archive)
if(NOT WEFT_SANITIZE)  # the runtime of a sanitizer belongs to the program
  target_link_options(loom_shared PRIVATE LINKER:--no-undefined)
endif()
target_link_libraries(loom_shared PUBLIC weft PRIVATE fmt::fmt ICU::uc DNNL::dnnl OpenMP::OpenMP_CXX Threads::Threads)
set_target_properties(loom_shared PROPERTIES OUTPUT_NAME loom EXPORT_NAME loom LINK_DEPENDS "${LOOM_EXPORTS};$<TARGET_FILE:loom>"
                                             VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
add_library(loom::loom ALIAS loom_shared)

# Static: all objects become one, in which every symbol but the interface's is local.
set(LOOM_MERGED ${CMAKE_CURRENT_BINARY_DIR}/loom_merged.o)
add_custom_command(
  OUTPUT ${LOOM_MERGED}
  COMMAND ${WEFT_MERGE} ${LOOM_MERGED} _ZN4loom* _ZNK4loom* _ZTIN4loom* _ZTSN4loom* _ZTVN4loom* -- --whole-archive $<TARGET_FILE:loom>
  DEPENDS loom $<TARGET_FILE:loom>
  VERBATIM)
set_source_files_properties(${LOOM_MERGED} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
add_library(loom_static STATIC ${LOOM_MERGED})
set_target_properties(loom_static PROPERTIES OUTPUT_NAME loom LINKER_LANGUAGE CXX EXPORT_NAME loom_static)
# By bare names, as for Weft.
target_link_libraries(loom_static INTERFACE weft_static dnnl icuuc gomp fmt pthread stdc++ m)
add_library(loom::loom_static ALIAS loom_static)

foreach(library loom_shared loom_static)
  target_compile_features(${library} INTERFACE cxx_std_20)
  target_include_directories(${library} INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()

# libweft.so and libweft.a out of weft_objects: nothing but the functions of weft.h is visible in either.

# The header is what programs see: the version is stated there, and repeated for CMake.
foreach(part MAJOR MINOR PATCH)
  file(STRINGS ${PROJECT_SOURCE_DIR}/include/weft/weft.h line REGEX "^#define WEFT_${part} ")
  if(NOT line STREQUAL "#define WEFT_${part} ${PROJECT_VERSION_${part}}")
    message(FATAL_ERROR "weft.h says \"${line}\", but project() in CMakeLists.txt has VERSION ${PROJECT_VERSION}")
  endif()
endforeach()

# Shared: a linker script keeps what the compiler's hidden visibility lets through (templates of the standard library).
set(WEFT_EXPORTS ${PROJECT_SOURCE_DIR}/cmake/weft.map)
add_library(weft SHARED)
target_link_libraries(weft PRIVATE weft_objects)
# It stays loaded: the process's handlers of signals point into it.
target_link_options(weft PRIVATE LINKER:--version-script=${WEFT_EXPORTS} LINKER:--exclude-libs,ALL LINKER:-z,nodelete)
if(NOT WEFT_SANITIZE)  # the runtime of a sanitizer belongs to the program
  target_link_options(weft PRIVATE LINKER:--no-undefined)
endif()
set_target_properties(weft PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE CXX
                                      LINK_DEPENDS ${WEFT_EXPORTS})
target_include_directories(weft INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                          $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
add_library(weft::weft ALIAS weft)

# Static: all objects become one, in which every symbol but the interface's is local.
set(WEFT_MERGE ${PROJECT_SOURCE_DIR}/cmake/merge_objects.sh ${CMAKE_LINKER} ${CMAKE_OBJCOPY} ${CMAKE_NM}
    CACHE INTERNAL "Makes one object of many; its arguments follow")
set(WEFT_MERGED ${CMAKE_CURRENT_BINARY_DIR}/weft_merged.o)
set(WEFT_OBJECTS $<FILTER:$<TARGET_OBJECTS:weft_objects>,EXCLUDE,[.]gch$>)  # a precompiled header counts as one
add_custom_command(
  OUTPUT ${WEFT_MERGED}
  COMMAND ${WEFT_MERGE} ${WEFT_MERGED} weft[A-Z]* -- ${WEFT_OBJECTS}
  DEPENDS weft_objects ${WEFT_OBJECTS}
  COMMAND_EXPAND_LISTS VERBATIM)
set_source_files_properties(${WEFT_MERGED} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
add_library(weft_static STATIC ${WEFT_MERGED})
set_target_properties(weft_static PROPERTIES OUTPUT_NAME weft LINKER_LANGUAGE CXX EXPORT_NAME weft_static)
# By bare names: whoever links statically needs these libraries, but none of their CMake files.
target_link_libraries(weft_static INTERFACE fmt hwloc pthread dl stdc++ m)
target_include_directories(weft_static INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                 $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
add_library(weft::weft_static ALIAS weft_static)

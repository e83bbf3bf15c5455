# Pages with charts need no other file: share/pages is compiled into what writes them.
foreach(asset STYLE=page.css CHARTS=charts.js TIMELINE=timeline.js)
  string(REGEX MATCH "^(.*)=(.*)$" _ ${asset})
  file(READ ${PROJECT_SOURCE_DIR}/share/pages/${CMAKE_MATCH_2} PAGE_${CMAKE_MATCH_1})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/share/pages/${CMAKE_MATCH_2})
endforeach()
configure_file(cmake/page_assets.h.in ${PROJECT_BINARY_DIR}/generated/pages/assets.h @ONLY)
# Of the sources that write pages.
set(PAGES_INCLUDE ${PROJECT_SOURCE_DIR}/share ${PROJECT_BINARY_DIR}/generated)

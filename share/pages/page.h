// Pages with charts, as one file that needs no other: charts are described by JSON in the page, and
// charts.js, which is in it, draws them. Everything that writes such a page goes through here;
// perf/comparison/page.py does the same in Python.
//
// Thread safety: pure functions.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "pages/assets.h"

namespace pages {

using Json = nlohmann::ordered_json;

/// For a page, where some letters mean something.
inline std::string as_text(std::string_view sentence) {
  std::string text;
  for (const char letter : sentence) {
    if (letter == '<') text += "&lt;";
    else if (letter == '>') text += "&gt;";
    else if (letter == '&') text += "&amp;";
    else text += letter;
  }
  return text;
}

/// JSON inside of a script element, which a "</" would end.
inline std::string in_script(const Json& json) {
  const std::string all = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string text;
  for (size_t i = 0; i < all.size(); ++i) {
    text += all[i];
    if (all[i] == '<' && i + 1 < all.size() && all[i + 1] == '/') text += '\\';
  }
  return text;
}

/// A chart as charts.js describes it: "title", axes "x" and "y", "series". Nothing where no series has
/// points.
inline std::string chart(const Json& spec) {
  bool empty = true;
  for (const Json& series : spec["series"]) empty = empty && series["points"].empty();
  if (empty) return {};
  return "<script type=\"application/json\" class=\"chart\">" + in_script(spec) + "</script>\n";
}

/// A whole page. `body` has its charts; what else it draws by itself follows as `script`.
inline std::string page(std::string_view title, std::string_view body, std::string_view script = "") {
  std::string text = "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>";
  text += as_text(title);
  text += "</title><meta name=\"viewport\" content=\"width=device-width\"><style>\n";
  text += kStyle;
  text += "</style></head>\n<body>\n";
  text += body;
  text += "\n<script>";
  text += kChartsScript;
  text += "</script>\n";
  if (!script.empty()) (((text += "<script>") += script) += "</script>\n");
  return text + "</body></html>\n";
}

}  // namespace pages

// What weft_info can print: each section once, as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace weft::info {

struct Section {
  std::string name;  // key in the JSON, heading in the text
  std::string text;  // lines, the last one ended
  nlohmann::ordered_json json;
};

Section version_section();
Section topology_section();
Section providers_section();
Section settings_section();
Section algorithms_section();
/// What is measured of this host, and where it is kept.
Section tuning_section();
/// What the CUDA driver and its devices offer, and what is done instead of what they do not. Makes a context
/// on each device.
Section cuda_section();
/// Which NCCL is here, who would get the communicators of NCCL's programs, and who got those that are
/// running.
Section nccl_section();

}  // namespace weft::info

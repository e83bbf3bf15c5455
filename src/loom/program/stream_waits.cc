// Which waits between streams a program needs. An instruction on a lane comes after what was computed and
// after what the computing stream has waited for. So its stream waits for the computing one. The wait is left
// out if the computing stream has had nothing new since the lane's last wait, but for the lane's own work.
// The computing stream waits for the youngest of a lane's instructions, which stands for the older ones. It
// does so when another stream comes after them: the lane itself is in order.
#include <algorithm>

#include "program/generate.h"

namespace loom::program {

void find_stream_waits(Program& program) {
  int lanes = 1;
  for (const Instruction& instruction : program.instructions) lanes = std::max(lanes, instruction.lane + 1);
  const auto count = static_cast<size_t>(lanes);
  // By lane: the youngest that what is issued comes after, and that the computing stream has waited for.
  std::vector<int> due(count, -1), waited(count, -1);
  // Times count instructions. Every lane has to wait for what was computed before the program.
  std::vector<int> changed(count, -1), joined(count, -1);
  changed[0] = 0;
  for (int i = 0; i < static_cast<int>(program.instructions.size()); ++i) {
    Instruction& instruction = program.instructions[static_cast<size_t>(i)];
    const auto lane = static_cast<size_t>(instruction.lane);
    instruction.events.clear();
    for (const int before : instruction.after) {
      int& of_lane = due[static_cast<size_t>(program.instructions[static_cast<size_t>(before)].lane)];
      of_lane = std::max(of_lane, before);
    }
    for (size_t other = 1; other < count; ++other) {
      if (other == lane || due[other] <= waited[other]) continue;
      waited[other] = due[other];
      changed[other] = i + 1;
      instruction.events.push_back(due[other]);
    }
    instruction.joins = false;
    if (lane == 0) {
      changed[0] = i + 1;
      continue;
    }
    for (size_t other = 0; other < count; ++other)
      instruction.joins |= other != lane && changed[other] > joined[lane];
    if (instruction.joins) joined[lane] = i + 1;
  }
}

}  // namespace loom::program

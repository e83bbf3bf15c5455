// exchange: collectives that only move blocks between pairs of ranks, on any layout. `direct` offers them on
// one node, `all_to_all` on several. Private to plan/.
#pragma once

#include "plan/schedule.h"

namespace weft::plan::exchange {

void gather(const Task& task, Builder& builder);
void scatter(const Task& task, Builder& builder);
void all_to_all(const Task& task, Builder& builder);

}  // namespace weft::plan::exchange

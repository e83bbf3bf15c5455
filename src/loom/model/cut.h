// Cut: along which side the ranks of a tensor-parallel group divide a parameter. Each divided layer's header
// says how its own are cut; split.h makes shapes and stretches of that.
//
// Thread safety: a value.
#pragma once

namespace loom::model {

struct Cut {
  int axis = -1;   // side that is cut; -1: none, every rank has all of it
  int blocks = 1;  // equal parts of that side which are cut each by itself
};

}  // namespace loom::model

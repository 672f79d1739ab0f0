// inductor/lowering/convolution_epilogues.h — what follows a convolution becomes part of the library's call: an
// addition of another tensor, and relu. A bias that the library adds in a separate call becomes an addition.
#pragma once

#include "graph/graph.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

// Where the target says so: convolutions of half precision over images, with a bias, whose result nobody else reads;
// and the biases of all others of half precision.
graph::Graph fuse_epilogues(graph::Graph functional, const TargetInfo& target);

}  // namespace framejit::inductor

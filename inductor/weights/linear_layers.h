// inductor/weights/linear_layers.h — products with a weight that may be packed.
#pragma once

#include <optional>

#include "graph/graph_builder.h"
#include "graph/weight_values.h"
#include "inductor/target/target_info.h"

namespace framejit::inductor {

// The value that an argument names; kNoValue: none.
graph::ValueId value_of(const graph::Arg& arg);

// mm, or addmm with one bias per column and factors of one: x [rows, terms] times weight [terms, columns].
struct LinearLayer {
  graph::ValueId x, weight, bias;  // kNoValue: no bias
};
std::optional<LinearLayer> linear_layer(const graph::Graph& graph, const graph::WeightValues& known,
                                        const graph::Node& node);

// Whether this machine packs the weight of a layer: oneDNN packs bfloat16, and MKL float32 for a known number of rows.
bool packs_bfloat16(const graph::Graph& graph, const LinearLayer& layer, const TargetInfo& target);
bool packs_float32(const graph::Graph& graph, const LinearLayer& layer, const TargetInfo& target);

// The weight as [columns, terms], as a layer stores it: the tensor that it is the transpose of, or a view.
graph::ValueId columns_first(graph::GraphBuilder& out, graph::ValueId weight);

}  // namespace framejit::inductor

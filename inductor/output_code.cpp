// inductor/output_code.cpp — kernel texts as log events.
#include "inductor/output_code.h"

#include <algorithm>
#include <set>

#include "runtime/base/config.h"
#include "runtime/base/log.h"

namespace framejit::inductor {

std::string origins_text(const graph::Graph& graph, const Kernel& kernel, const std::string& comment) {
  std::set<uint32_t> nodes;
  for (const KernelNest& n : kernel.nests) nodes.insert(n.nest.origins.begin(), n.nest.origins.end());
  std::string text;
  graph::LineId last = UINT32_MAX;
  for (uint32_t n : nodes) {
    const graph::Node& node = graph.nodes[n];
    const graph::Line& line = graph.lines[node.line];
    if (node.line != last) text += (text.empty() ? "" : "\n") + comment + " " + (line.file.empty() ? "?" : line.file + ":" + std::to_string(line.number) + " " + line.function) + ":";
    last = node.line;
    text += " " + node.op->name;
  }
  return text + "\n";
}

namespace {

void log_text(const graph::Graph& graph, const std::string& name, const Kernel& kernel, const KernelText& text) {
  std::string artefact = origins_text(graph, kernel, text.comment) + text.text;
  const auto lines = std::count(text.text.begin(), text.text.end(), '\n');
  log::emit(log::Kind::Kernel, graph.name, {{"kernel", name}, {"form", text.form}, {"lines", std::to_string(lines)}}, std::move(artefact));
}

}  // namespace

void log_kernel(const graph::Graph& graph, const std::string& name, const Kernel& kernel, KernelTarget& target) {
  if (!log::enabled(log::Kind::Kernel)) return;
  log_text(graph, name, kernel, {"kernel_ir", "#", print(kernel)});
  const auto texts = target.texts(kernel, config().assembly);
  if (!texts) return;  // compile() reports what is wrong
  for (const KernelText& text : texts.value()) log_text(graph, name, kernel, text);
}

}  // namespace framejit::inductor

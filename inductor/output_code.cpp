// inductor/output_code.cpp — kernel texts as log events.
#include "inductor/output_code.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "runtime/base/config.h"
#include "runtime/base/log.h"

namespace framejit::inductor {

namespace {

std::set<uint32_t> nodes_of(const Kernel& kernel) {
  std::set<uint32_t> nodes;
  for (const KernelNest& n : kernel.nests) nodes.insert(n.nest.origins.begin(), n.nest.origins.end());
  return nodes;
}

}  // namespace

std::string origins_text(const graph::Graph& graph, const Kernel& kernel, const std::string& comment) {
  std::string text;
  graph::LineId last = UINT32_MAX;
  for (uint32_t n : nodes_of(kernel)) {
    const graph::Node& node = graph.nodes[n];
    const graph::Line& line = graph.lines[node.line];
    if (node.line != last)
      text += (text.empty() ? "" : "\n") + comment + " " +
              (line.file.empty() ? "?" : line.file + ":" + std::to_string(line.number) + " " + line.function) + ":";
    last = node.line;
    text += " " + node.op->name;
  }
  return text + "\n";
}

std::string origins_name(const graph::Graph& graph, const Kernel& kernel) {
  constexpr size_t kMost = 80;
  std::string name, last;
  for (uint32_t n : nodes_of(kernel)) {
    const std::string op(graph::base_name(graph.nodes[n].op->name));
    if (op == last) continue;
    if (name.size() + op.size() > kMost) return name + "_etc";
    name += (name.empty() ? "" : "_") + op;
    last = op;
  }
  std::replace_if(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}

namespace {

void log_text(const graph::Graph& graph, const std::string& name, const Kernel& kernel, const KernelText& text) {
  std::string artefact = origins_text(graph, kernel, text.comment) + text.text;
  const auto lines = std::count(text.text.begin(), text.text.end(), '\n');
  log::emit(log::Kind::Kernel, "", {{"kernel", name}, {"form", text.form}, {"lines", std::to_string(lines)}},
            std::move(artefact));
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

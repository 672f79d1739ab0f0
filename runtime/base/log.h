// runtime/base/log.h — channels and events: one line per event, text or JSON from the same row.
//
// Channels and events are rows of log_channels.def and log_events.def. A channel that is off costs one load and a predictable
// branch. Sinks: stderr or FRAMEJIT_LOGS_OUT, plus any number of listeners (framejit.explain, tests).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/result.h"

namespace framejit::log {

enum class Channel : uint8_t {
#define LOG_CHANNEL(name, description) name,
#include "runtime/base/log_channels.def"
#undef LOG_CHANNEL
  kCount,
};

extern std::atomic<uint32_t> g_enabled;  // bit per channel; a listener enables all
inline bool enabled(Channel c) { return (g_enabled.load(std::memory_order_relaxed) >> static_cast<int>(c)) & 1; }

struct Event {
  Channel channel;
  std::string id;      // "3.1": frame id, attempt
  std::string name;    // row of log_events.def: "Break", "Recompile", "Graph", ...
  std::string where;   // "model.py:31 Net.forward"
  std::vector<std::pair<std::string, std::string>> fields;  // in the row's order
  std::string artefact;  // IR text, source; printed below the line prefixed by "| ", or dumped to a file
};

void emit(Event event);
std::string to_text(const Event& event);
std::string to_json(const Event& event);

// "graph_breaks,recompiles", "all", "-timing", "help". An unknown name is an error that lists the known ones.
Result<void> configure(std::string_view logs, std::string_view out, std::string_view format, std::string_view dump_dir);
using Listener = std::function<void(const Event&)>;
uint64_t add_listener(Listener listener);
void remove_listener(uint64_t id);

}  // namespace framejit::log

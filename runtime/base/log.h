// runtime/base/log.h — channels and events: one line per event, text or JSON from the same row.
//
// Channels and events are rows of log_channels.def and log_events.def; an event's row says its channel. A channel that
// is off costs one load and a predictable branch. Only `warnings` is on from the start. Sinks: stderr or
// FRAMEJIT_LOGS_OUT, plus any number of listeners (framejit.explain, tests).
// Events of one compile carry its id, on whatever thread they are emitted.
#pragma once

#include <atomic>
#include <chrono>
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

enum class Kind : uint8_t {
#define LOG_EVENT(name, channel, text) name,
#include "runtime/base/log_events.def"
#undef LOG_EVENT
};

constexpr Channel channel_of(Kind kind) {
  constexpr Channel channels[] = {
#define LOG_EVENT(name, channel, text) Channel::channel,
#include "runtime/base/log_events.def"
#undef LOG_EVENT
  };
  return channels[static_cast<int>(kind)];
}
const char* name_of(Channel channel);
const char* name_of(Kind kind);

extern std::atomic<uint32_t> g_enabled;  // bit per channel; a listener enables all
inline bool enabled(Channel c) { return (g_enabled.load(std::memory_order_relaxed) >> static_cast<int>(c)) & 1; }
inline bool enabled(Kind kind) { return enabled(channel_of(kind)); }

using Fields = std::vector<std::pair<std::string, std::string>>;

struct Event {
  Kind kind;
  std::string id;      // "3.1": number of the code object, and of its compile; "" outside compiles
  std::string where;   // "model.py:31 Net.forward"
  Fields fields;       // in the row's order
  std::string artefact;  // IR text, source; printed below the line prefixed by "| ", or dumped to a file
};

// While one exists, the events of its thread carry its id, and its place (that of the code which is compiled) if they
// name none; warnings are about the process. Other threads that work for a compile open one with its current_id() and
// current_place().
class CompileScope {
 public:
  explicit CompileScope(std::string id, std::string place = "");
  ~CompileScope();
  CompileScope(const CompileScope&) = delete;
  CompileScope& operator=(const CompileScope&) = delete;

 private:
  std::string before_, place_before_;
};
const std::string& current_id();
const std::string& current_place();

// While one exists, its thread emits nothing: for work that is only tried and may be thrown away.
class Muted {
 public:
  Muted();
  ~Muted();
  Muted(const Muted&) = delete;

 private:
  bool before_;
};

void emit(Kind kind, std::string where, Fields fields, std::string artefact = "");

// On the channel timing. Does nothing if nobody listens.
void emit_stage(const std::string& where, const std::string& stage, double milliseconds);

// Emits a stage when it ends.
class Stopwatch {
 public:
  Stopwatch(std::string where, std::string stage);
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;

 private:
  std::string where_, stage_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

std::string to_text(const Event& event);
std::string to_json(const Event& event);

// "graph_breaks,recompiles", "all", "-timing", "help". An unknown name is an error that lists the known ones.
Result<void> configure(std::string_view logs, std::string_view out, std::string_view format, std::string_view dump_dir);
using Listener = std::function<void(const Event&)>;
uint64_t add_listener(Listener listener);
void remove_listener(uint64_t id);

}  // namespace framejit::log

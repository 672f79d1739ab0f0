// runtime/base/log.cpp — sinks, and the two forms of an event.
//
// One mutex guards the sinks. Listeners run and die outside it, because they may take other locks, such as the GIL.
// Text and JSON are both made from the fields of the event; the row of log_events.def only gives their order in the
// line.
#include "runtime/base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <memory>
#include <mutex>

#include "runtime/base/closest_name.h"
#include "runtime/base/own_file.h"
#include "runtime/base/short_lists.h"
#include "runtime/base/text.h"

namespace framejit::log {

std::atomic<uint32_t> g_enabled{1u << static_cast<int>(Channel::warnings)};

namespace {

struct ChannelRow {
  const char* name;
  const char* description;
};
constexpr ChannelRow kChannels[] = {
#define LOG_CHANNEL(name, description) {#name, description},
#include "runtime/base/log_channels.def"
#undef LOG_CHANNEL
};
constexpr uint32_t kAll = (1u << static_cast<int>(Channel::kCount)) - 1,
                   kUnnamed = 1u << static_cast<int>(Channel::warnings);

struct EventRow {
  const char* name;
  const char* text;
};
constexpr EventRow kEvents[] = {
#define LOG_EVENT(name, channel, text) {#name, text},
#include "runtime/base/log_events.def"
#undef LOG_EVENT
};

struct LogFile {
  explicit LogFile(int of_file) : descriptor(of_file) {}
  ~LogFile() {
    if (descriptor >= 0) close(descriptor);
  }
  LogFile(const LogFile&) = delete;
  const int descriptor;
  bool has_failed = false;  // nothing more is written to it
};

struct Sinks {
  std::mutex mutex;
  uint32_t wanted = kUnnamed;  // channels that the user asked for; g_enabled adds all channels if there are listeners
  bool json = false;
  std::unique_ptr<LogFile> file;
  std::string file_name, dump_dir;
  uint32_t artefacts = 0;
  bool said_of_dumps = false;  // whether the log has said that they cannot be written
  std::vector<std::pair<uint64_t, std::shared_ptr<const Listener>>> listeners;
  uint64_t next_listener = 1;

  void refresh() { g_enabled.store(listeners.empty() ? wanted : kAll, std::memory_order_relaxed); }
};
Sinks& sinks() {
  static Sinks* s = new Sinks;  // never destroyed: threads may log during exit
  return *s;
}

thread_local std::string t_id, t_place;
thread_local bool t_is_muted = false;

std::vector<std::string> known_words() {
  std::vector<std::string> words;
  for (const ChannelRow& row : kChannels) words.emplace_back(row.name);
  words.emplace_back("all");
  words.emplace_back("help");
  return words;
}

// Bytes of the well-formed UTF-8 sequence at `at`; 0 if there is none.
size_t utf8_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(at), second = byte(at + 1);
  const size_t length = first < 0x80                    ? 1
                        : first >= 0xC2 && first < 0xE0 ? 2
                        : first >= 0xE0 && first < 0xF0 ? 3
                        : first >= 0xF0 && first < 0xF5 ? 4
                                                        : 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
  const bool is_overlong_or_beyond = (first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
                                     (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F);
  return is_overlong_or_beyond ? 0 : length;
}

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x80) {
      const size_t length = utf8_length(text, at);
      out += length == 0 ? "\xEF\xBF\xBD" : text.substr(at, length);  // bytes that are not UTF-8 become U+FFFD
      at += length == 0 ? 0 : length - 1;
      continue;
    }
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (byte < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", byte);
      out += escape;
    } else {
      out += c;
    }
  }
  out += '"';
}

std::string fill(std::string_view text, const Event& event) {
  std::string line;
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t close = text[i] == '{' ? text.find('}', i) : std::string_view::npos;
    if (close == std::string_view::npos) {
      line += text[i];
      continue;
    }
    const std::string_view field = text.substr(i + 1, close - i - 1);
    for (const auto& [key, value] : event.fields)
      if (key == field) line += value;
    i = close;
  }
  return line;
}

std::string not_written(const Sinks& s, const std::string& path, int error, const char* setting) {
  const Event event{
      Kind::NotWritten, t_id, "", {{"path", path}, {"reason", error_text(error)}, {"setting", setting}}, ""};
  return (s.json ? to_json(event) : to_text(event)) + "\n";
}

// Writes the artefact to its numbered file; returns the path, or "" if there is no dump folder or it cannot be written.
// The first time that it cannot be written, `problem` gets the line that says so.
std::string dump(Sinks& s, const Event& event, std::string& problem) {
  if (s.dump_dir.empty() || event.artefact.empty()) return "";
  const std::string id = event.id.empty() ? "0" : event.id;
  char number[16];
  std::snprintf(number, sizeof number, "%04u", s.artefacts++);
  const std::string name = std::string(number) + "_" + name_of(event.kind) + ".txt";
  const std::filesystem::path path = std::filesystem::path(s.dump_dir) / id / name;
  const int folder = open_own_folder(s.dump_dir, id), file = folder < 0 ? -1 : open_own_file(folder, name);
  bool is_written = file >= 0 && write_whole(file, event.artefact);
  int error = errno;
  if (file >= 0 && close(file) != 0) is_written = false, error = errno;
  if (file >= 0 && !is_written) unlinkat(folder, name.c_str(), 0);  // part of a dump would look like a whole one
  if (folder >= 0) close(folder);
  if (is_written) return path.string();
  if (!std::exchange(s.said_of_dumps, true) && (s.wanted & kUnnamed))
    problem = not_written(s, (folder < 0 ? path.parent_path() : path).string(), error, "FRAMEJIT_DUMP_DIR");
  return "";
}

// What does not fit in a line, with "| " before each of its lines. Code is shown as it is.
std::string as_block(const Event& event) {
  const std::string text = event.kind == Kind::Kernel ? event.artefact : text::with_short_lists(event.artefact);
  std::string lines = "| ";
  for (size_t i = 0; i < text.size(); ++i) {
    lines += text[i];
    if (text[i] == '\n' && i + 1 < text.size()) lines += "| ";
  }
  return lines.back() == '\n' ? lines : lines + '\n';
}

void write(Sinks& s, const std::string& lines) {
  if (!s.file) {
    std::fwrite(lines.data(), 1, lines.size(), stderr);
    return;
  }
  if (s.file->has_failed) return;
  errno = 0;
  s.file->has_failed = !write_whole(s.file->descriptor, lines);
  if (!s.file->has_failed || !(s.wanted & kUnnamed)) return;
  const std::string line = not_written(s, s.file_name, errno, "FRAMEJIT_LOGS_OUT");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

}  // namespace

void emit_stage(const std::string& where, const std::string& stage, double milliseconds) {
  if (enabled(Kind::Stage))
    emit(Kind::Stage, where, {{"stage", stage}, {"milliseconds", std::to_string(milliseconds)}});
}

Stopwatch::Stopwatch(std::string where, std::string stage) : where_(std::move(where)), stage_(std::move(stage)) {}
Stopwatch::~Stopwatch() {
  const std::chrono::duration<double, std::milli> spent = std::chrono::steady_clock::now() - start_;
  emit_stage(where_, stage_, spent.count());
}

std::string to_text(const Event& event) {
  std::string line = "[framejit " + event.id + (event.id.empty() ? "" : " ") + name_of(channel_of(event.kind)) + "]";
  if (!event.where.empty()) line += " " + event.where;
  return line + " " + fill(kEvents[static_cast<int>(event.kind)].text, event);
}

std::string to_json(const Event& event) {
  std::string line = "{";
  auto add = [&](std::string_view key, std::string_view value) {
    if (line.size() > 1) line += ',';
    append_json_string(line, key);
    line += ':';
    append_json_string(line, value);
  };
  add("id", event.id);
  add("channel", name_of(channel_of(event.kind)));
  add("event", name_of(event.kind));
  add("at", event.where);
  for (const auto& [key, value] : event.fields) add(key, value);
  if (!event.artefact.empty()) add("text", event.artefact);
  return line + "}";
}

const char* name_of(Channel channel) { return kChannels[static_cast<int>(channel)].name; }
const char* name_of(Kind kind) { return kEvents[static_cast<int>(kind)].name; }

CompileScope::CompileScope(std::string id, std::string place)
    : before_(std::exchange(t_id, std::move(id))), place_before_(std::exchange(t_place, std::move(place))) {}
CompileScope::~CompileScope() {
  t_id = std::move(before_);
  t_place = std::move(place_before_);
}
const std::string& current_id() { return t_id; }
const std::string& current_place() { return t_place; }

Muted::Muted() : before_(std::exchange(t_is_muted, true)) {}
Muted::~Muted() { t_is_muted = before_; }

void emit(Kind kind, std::string where, Fields fields, std::string artefact) {
  if (t_is_muted) return;
  if (where.empty() && channel_of(kind) != Channel::warnings) where = t_place;
  const Event event{kind, t_id, std::move(where), std::move(fields), std::move(artefact)};
  Sinks& s = sinks();
  std::unique_lock lock(s.mutex);
  if (!s.listeners.empty()) {
    const auto listeners = s.listeners;
    lock.unlock();
    for (const auto& [id, listener] : listeners) (*listener)(event);
    lock.lock();
  }
  if (!((s.wanted >> static_cast<int>(channel_of(kind))) & 1)) return;
  std::string lines;
  if (s.json) {
    lines = to_json(event) + "\n";
  } else {
    lines = to_text(event);
    std::string problem;
    const std::string path = dump(s, event, problem);
    lines = problem + lines;
    if (!path.empty()) lines += ": " + path;
    lines += '\n';
    if (path.empty() && !event.artefact.empty()) lines += as_block(event);
  }
  write(s, lines);
}

namespace {

// The channels of a list; "help" prints all channels.
Result<uint32_t> wanted_channels(std::string_view logs) {
  uint32_t wanted = kUnnamed;
  for (std::string_view name : text::parts_of(logs)) {
    if (name == "help") {
      std::fputs("FRAMEJIT_LOGS takes a list of channels, all, or -channel:\n", stderr);
      for (const ChannelRow& row : kChannels) std::fprintf(stderr, "  %-14s %s\n", row.name, row.description);
      continue;
    }
    const bool remove = name.front() == '-';
    if (remove) name.remove_prefix(1);
    uint32_t bits = name == "all" ? kAll : 0;
    for (size_t i = 0; i < std::size(kChannels); ++i)
      if (name == kChannels[i].name) bits = 1u << i;
    if (bits == 0)
      return Error{Reason::bad_setting,
                   "FRAMEJIT_LOGS: unknown channel '" + std::string(name) + "'; " + advice_for(name, known_words())};
    wanted = remove ? wanted & ~bits : wanted | bits;
  }
  return wanted;
}

}  // namespace

Result<void> configure(std::string_view logs, std::string_view out, std::string_view format,
                       std::string_view dump_dir) {
  FJ_TRY(const uint32_t wanted, wanted_channels(logs));
  if (!format.empty() && format != "text" && format != "json")
    return Error{Reason::bad_setting, "FRAMEJIT_LOGS_FORMAT: '" + std::string(format) + "' is not text or json"};
  std::unique_ptr<LogFile> file;
  if (!out.empty()) {
    file = std::make_unique<LogFile>(open_to_append(std::string(out)));
    const int error = errno;
    if (file->descriptor < 0)
      return Error{Reason::bad_setting, "FRAMEJIT_LOGS_OUT: cannot write '" + std::string(out) +
                                            "': " + open_error_text(error, std::string(out)) +
                                            "; name a file that you may write, in a folder that exists"};
  }
  if (!dump_dir.empty()) {
    std::error_code failed;
    std::filesystem::create_directories(dump_dir, failed);
    if (failed || access(std::string(dump_dir).c_str(), W_OK) != 0)
      return Error{Reason::bad_setting, "FRAMEJIT_DUMP_DIR: cannot write '" + std::string(dump_dir) +
                                            "': " + (failed ? failed.message() : std::strerror(errno)) +
                                            "; name a folder in which you may write"};
  }
  Sinks& s = sinks();
  std::lock_guard lock(s.mutex);
  s.wanted = wanted;
  s.json = format == "json";
  s.file = std::move(file);
  s.file_name = out;
  s.dump_dir = dump_dir;
  s.said_of_dumps = false;
  s.artefacts = 0;
  s.refresh();
  return {};
}

uint64_t add_listener(Listener listener) {
  Sinks& s = sinks();
  std::lock_guard lock(s.mutex);
  s.listeners.emplace_back(s.next_listener, std::make_shared<const Listener>(std::move(listener)));
  s.refresh();
  return s.next_listener++;
}

void remove_listener(uint64_t id) {
  Sinks& s = sinks();
  std::shared_ptr<const Listener> removed;  // dies after the lock
  std::lock_guard lock(s.mutex);
  const auto at =
      std::find_if(s.listeners.begin(), s.listeners.end(), [&](const auto& entry) { return entry.first == id; });
  if (at == s.listeners.end()) return;
  removed = std::move(at->second);
  s.listeners.erase(at);
  s.refresh();
}

}  // namespace framejit::log

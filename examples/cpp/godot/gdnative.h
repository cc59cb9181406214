// SPDX-License-Identifier: Apache-2.0
//
// What this extension uses of GDNative, the C interface of Godot 3 to native code. Distributions ship the engine without
// its headers, and the engine exports no symbols: it hands over a table of functions. Here are the places in that table
// (core API 1.0, the same from Godot 3.0 to 3.6) and the types that are passed. check() tries them on the running engine.
#pragma once

#include <cstdint>
#include <cstring>

namespace godot {

struct Object;
struct MethodBind;
struct alignas(8) Variant {
  unsigned char bytes[24];
};
struct alignas(8) String {
  unsigned char bytes[8];
};
struct Version {
  unsigned major, minor;
};
struct ApiHeader {
  unsigned type;
  Version version;
  const ApiHeader *next;
};
struct CoreApi {
  ApiHeader header;
  unsigned extension_count;
  const ApiHeader *const *extensions;
  void *functions[744];
};
struct InitOptions {
  bool in_editor;
  uint64_t core_api_hash, editor_api_hash, no_api_hash;
  void (*report_version_mismatch)(const Object *library, const char *what, Version want, Version have);
  void (*report_loading_error)(const Object *library, const char *what);
  Object *library;
  const CoreApi *core;
  const String *library_path;
};

struct CreateFunction {
  void *(*create)(Object *instance, void *method_data);
  void *method_data;
  void (*free)(void *);
};
struct DestroyFunction {
  void (*destroy)(Object *instance, void *method_data, void *user_data);
  void *method_data;
  void (*free)(void *);
};
struct Method {
  Variant (*call)(Object *instance, void *method_data, void *user_data, int count, Variant **arguments);
  void *method_data;
  void (*free)(void *);
};
struct MethodAttributes {
  int rpc_type;
};
struct NativeScriptApi {
  ApiHeader header;
  void (*register_class)(void *handle, const char *name, const char *base, CreateFunction, DestroyFunction);
  void (*register_tool_class)(void *handle, const char *name, const char *base, CreateFunction, DestroyFunction);
  void (*register_method)(void *handle, const char *class_name, const char *method, MethodAttributes, Method);
};

/// The functions of the core that are used, by their place in the table.
class Api {
 public:
  /// NULL if everything is as declared here, else a sentence.
  const char *check(const InitOptions &options) {
    core_ = options.core;
    if (core_ == nullptr || core_->header.type != 0) return "the engine's table is not GDNative's core";
    if (core_->header.version.major != 1) {
      options.report_version_mismatch(options.library, "Core", {1, 0}, core_->header.version);
      return "the engine's GDNative is not of version 1";
    }
    for (unsigned i = 0; i < core_->extension_count; ++i) {
      const ApiHeader *extension = core_->extensions[i];
      if (extension->type == 1 && extension->version.major == 1 && extension->version.minor == 0) {
        native_script_ = reinterpret_cast<const NativeScriptApi *>(extension);
      }
    }
    if (native_script_ == nullptr) return "the engine has no NativeScript 1.0";
    return check_sizes();
  }

  const NativeScriptApi &native_script() const { return *native_script_; }

  Variant nil() const {
    Variant result;
    function<void (*)(Variant *)>(509)(&result);
    return result;
  }
  int64_t as_int(const Variant &value) const { return function<int64_t (*)(const Variant *)>(539)(&value); }
  void destroy(Variant &value) const { function<void (*)(Variant *)>(570)(&value); }

  void print(const char *utf8) const {
    String text = string(utf8);
    function<void (*)(const String *)>(743)(&text);
    destroy(text);
  }
  void print_error(const char *sentence) const {
    function<void (*)(const char *, const char *, const char *, int)>(741)(sentence, "gradscaler", "extension.cpp", 0);
  }

  void *alloc(int bytes) const { return function<void *(*)(int)>(738)(bytes); }
  void free(void *memory) const { function<void (*)(void *)>(740)(memory); }

  MethodBind *method(const char *class_name, const char *name) const {
    return function<MethodBind *(*)(const char *, const char *)>(732)(class_name, name);
  }
  void call(MethodBind *method, Object *object, const void **arguments, void *result) const {
    function<void (*)(MethodBind *, Object *, const void **, void *)>(733)(method, object, arguments, result);
  }

 private:
  template <typename F>
  F function(int place) const {
    return reinterpret_cast<F>(core_->functions[place]);
  }
  String string(const char *utf8) const {
    String text;
    function<void (*)(String *)>(574)(&text);
    function<bool (*)(String *, const char *)>(679)(&text, utf8);
    return text;
  }
  void destroy(String &text) const { function<void (*)(String *)>(721)(&text); }

  /// The engine writes as many bytes as are declared here and no more, and what it wrote comes out again.
  const char *check_sizes() const {
    unsigned char room[64];
    const auto written = [&room](size_t limit) {
      size_t end = sizeof room;
      while (end > 0 && room[end - 1] == 0xA5) --end;
      return end <= limit;
    };
    std::memset(room, 0xA5, sizeof room);
    Variant &number = *reinterpret_cast<Variant *>(room);
    function<void (*)(Variant *, int64_t)>(512)(&number, 0x5A5A5A5A5A5A5A5A);
    if (!written(sizeof(Variant)) || as_int(number) != 0x5A5A5A5A5A5A5A5A) return "the engine's Variant is another";
    if (function<int (*)(const Variant *)>(507)(&number) != 2) return "the engine's types have other numbers";
    destroy(number);
    std::memset(room, 0xA5, sizeof room);
    String &text = *reinterpret_cast<String *>(room);
    function<void (*)(String *)>(574)(&text);
    const bool parsed = function<bool (*)(String *, const char *)>(679)(&text, "scale \xC3\x97 2");
    const bool right = !parsed && function<int (*)(const String *)>(583)(&text) == 9 && written(sizeof(String));
    destroy(text);
    return right ? nullptr : "the engine's String is another";
  }

  const CoreApi *core_ = nullptr;
  const NativeScriptApi *native_script_ = nullptr;
};

}  // namespace godot

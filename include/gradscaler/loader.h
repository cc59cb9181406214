/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GRADSCALER_LOADER_H
#define GRADSCALER_LOADER_H
/*
 * Loads gradscaler at run time: include this file, link nothing (systems whose dlopen is not in the C library, such as
 * glibc before 2.34, need -ldl), and call everything through the table.
 *
 *     gsc_library library; char message[1024];
 *     if (!gsc_library_open(&library, NULL, message, sizeof message)) { fprintf(stderr, "%s\n", message); return 1; }
 *     gsc_context *ctx; library.api->context_create(NULL, &ctx);   // gsc_context_create
 *     ...
 *     gsc_library_close(&library);
 *
 * C99 and C++; POSIX and Windows. The table itself is in <gradscaler/api.h>.
 */
#include <gradscaler/api.h>
#include <limits.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#ifndef NOMINMAX
#define NOMINMAX
#endif
#include <windows.h>
#else
#include <dlfcn.h>
#include <unistd.h>
#if defined(__linux__)
#include <link.h>
#include <sys/stat.h>
#endif
#endif

/** The file name that the system's loader searches for, with this header's ABI number. */
#if defined(_WIN32)
#define GSC_LIBRARY_NAME "gradscaler.dll"
#elif defined(__APPLE__)
#define GSC_LIBRARY_NAME "libgradscaler.1.dylib"
#else
#define GSC_LIBRARY_NAME "libgradscaler.so.1"
#endif

/** A loaded library. Both fields are NULL if no library is loaded. */
typedef struct gsc_library {
  /** From dlopen or LoadLibrary. */
  void *handle;
  /** Every function, valid until gsc_library_close. */
  const gsc_api *api;
} gsc_library;

/* Appends to a message that may be full or NULL; what does not fit is cut off. */
static inline void gsc_library_say_(char *message, size_t message_size, const char *text) {
  size_t length, room;
  if (message == NULL || message_size == 0) return;
  length = strlen(message);
  room = message_size - 1 - length;
  if (strlen(text) < room) room = strlen(text);
  memcpy(message + length, text, room);
  message[length + room] = '\0';
}

/* The system's message for the last failure to load. */
static inline void gsc_library_say_reason_(char *message, size_t message_size) {
#if defined(_WIN32)
  wchar_t wide[256];
  char text[1024];
  DWORD code = GetLastError();
  DWORD length = FormatMessageW(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL, code, 0, wide,
                                (DWORD)(sizeof wide / sizeof *wide), NULL);
  while (length > 0 && (wide[length - 1] == L'\n' || wide[length - 1] == L'\r')) --length;
  length = (DWORD)WideCharToMultiByte(CP_UTF8, 0, wide, (int)length, text, (int)sizeof text - 1, NULL, NULL);
  text[length] = '\0';
  if (length == 0) snprintf(text, sizeof text, "error %lu", (unsigned long)code);
  gsc_library_say_(message, message_size, text);
#else
  const char *text = dlerror();
  gsc_library_say_(message, message_size, text != NULL ? text : "unknown reason");
#endif
}

/* Unloads the library. */
static inline void gsc_library_unload_(void *handle) {
#if defined(_WIN32)
  if (handle != NULL) FreeLibrary((HMODULE)handle);
#else
  if (handle != NULL) dlclose(handle);
#endif
}

#if defined(__linux__)
/* Whether a file is shorter than its segments. dlopen does not check this and touches missing pages, which ends the
 * process with SIGBUS. Returns 0 for files that are no libraries: dlopen reports those. */
static inline int gsc_library_is_cut_off_(const char *path) {
  ElfW(Ehdr) header;
  ElfW(Phdr) segment;
  struct stat status;
  int i, cut_off = 0;
  FILE *file;
  /* A name without a slash is the system's to find. */
  if (strchr(path, '/') == NULL || stat(path, &status) != 0 || !S_ISREG(status.st_mode)) return 0;
  file = fopen(path, "rb");
  if (file == NULL) return 0;
  if (fread(&header, sizeof header, 1, file) == 1 && memcmp(header.e_ident, ELFMAG, SELFMAG) == 0 &&
      header.e_phentsize == sizeof segment && header.e_phoff <= LONG_MAX &&
      fseek(file, (long)header.e_phoff, SEEK_SET) == 0) {
    const uint64_t size = (uint64_t)status.st_size;
    for (i = 0; i < header.e_phnum && !cut_off; ++i) {
      cut_off = fread(&segment, sizeof segment, 1, file) != 1 ||
                (segment.p_type == PT_LOAD && segment.p_filesz > 0 &&
                 (segment.p_offset > size || segment.p_filesz > size - segment.p_offset));
    }
  }
  fclose(file);
  return cut_off;
}
#endif

/* Tries one path. 1 on success; else 0, and the path with the reason is appended to the message. */
static inline int gsc_library_try_(gsc_library *library, const char *path, char *message, size_t message_size) {
  const gsc_api *(*get_api)(uint32_t) = NULL;
  void *handle;
#if defined(_WIN32)
  wchar_t wide[4096];
#endif
  gsc_library_say_(message, message_size, "; tried \"");
  gsc_library_say_(message, message_size, path);
  gsc_library_say_(message, message_size, "\": ");
#if defined(_WIN32)
  handle = NULL;
  if (MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, (int)(sizeof wide / sizeof *wide)) > 0) {
    handle = (void *)LoadLibraryW(wide);
  }
  if (handle != NULL) {
    FARPROC symbol = GetProcAddress((HMODULE)handle, "gsc_library_get_api");
    memcpy(&get_api, &symbol, sizeof get_api); /* a cast between unrelated function types would draw a warning */
  }
#else
#if defined(__linux__)
  if (gsc_library_is_cut_off_(path)) {
    gsc_library_say_(message, message_size, "the file is cut off; copy it again");
    return 0;
  }
#endif
  handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (handle != NULL) {
    void *symbol = dlsym(handle, "gsc_library_get_api");
    memcpy(&get_api, &symbol, sizeof get_api); /* ISO C has no cast from data to function pointers */
  }
#endif
  if (handle == NULL) {
    gsc_library_say_reason_(message, message_size);
    return 0;
  }
  if (get_api == NULL) {
    gsc_library_say_(message, message_size, "not gradscaler: it has no gsc_library_get_api");
    gsc_library_unload_(handle);
    return 0;
  }
  library->api = get_api(GSC_ABI_VERSION);
  if (library->api == NULL) {
    char text[64];
    snprintf(text, sizeof text, "it does not provide ABI %u", (unsigned)GSC_ABI_VERSION);
    gsc_library_say_(message, message_size, text);
    gsc_library_unload_(handle);
    return 0;
  }
  library->handle = handle;
  return 1;
}

/* Copies GRADSCALER_LIBRARY. 0 if it is unset, empty or too long, or if the program is setuid or setgid. */
static inline int gsc_library_environment_(char *path, size_t path_size) {
#if defined(_WIN32)
  wchar_t wide[4096];
  DWORD length = GetEnvironmentVariableW(L"GRADSCALER_LIBRARY", wide, (DWORD)(sizeof wide / sizeof *wide));
  if (length == 0 || length >= sizeof wide / sizeof *wide) return 0;
  return WideCharToMultiByte(CP_UTF8, 0, wide, -1, path, (int)path_size, NULL, NULL) > 0;
#else
  const char *value = getenv("GRADSCALER_LIBRARY");
  if (value == NULL || value[0] == '\0' || strlen(value) >= path_size) return 0;
  if (getuid() != geteuid() || getgid() != getegid()) return 0;
  memcpy(path, value, strlen(value) + 1);
  return 1;
#endif
}

/**
 * Loads the library and fetches its table. `path` NULL: the file named by the environment variable GRADSCALER_LIBRARY
 * if it is set, then GSC_LIBRARY_NAME where the system searches; else exactly `path`. On Windows paths and messages are
 * UTF-8. Returns 1 on success, with "" in `message`. Else returns 0 with *library cleared and a sentence in `message`
 * (may be NULL; at most message_size bytes with the final zero) that lists every path tried and why it failed.
 * A library older than this header may lack functions that the header declares: see GSC_API_HAS.
 */
static inline int gsc_library_open(gsc_library *library, const char *path, char *message, size_t message_size) {
  char from_environment[4096];
  library->handle = NULL;
  library->api = NULL;
  if (message != NULL && message_size > 0) message[0] = '\0';
  gsc_library_say_(message, message_size, "cannot load gradscaler");
  if (path == NULL && gsc_library_environment_(from_environment, sizeof from_environment)) {
    gsc_library_try_(library, from_environment, message, message_size);
  }
  if (library->api == NULL) {
    gsc_library_try_(library, path != NULL ? path : GSC_LIBRARY_NAME, message, message_size);
  }
  if (library->api == NULL) {
    if (path == NULL) {
      gsc_library_say_(message, message_size, "; the environment variable GRADSCALER_LIBRARY can name the file");
    }
    return 0;
  }
  if (message != NULL && message_size > 0) message[0] = '\0';
  return 1;
}

/**
 * Unloads the library. Destroy every object first and let every stream finish; the table and all strings of the library
 * become invalid. Does nothing if no library is loaded.
 */
static inline void gsc_library_close(gsc_library *library) {
  if (library->handle != NULL) gsc_library_unload_(library->handle);
  library->handle = NULL;
  library->api = NULL;
}

#endif /* GRADSCALER_LOADER_H */

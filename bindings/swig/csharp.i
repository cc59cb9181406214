/* SPDX-License-Identifier: Apache-2.0
 *
 * Typemaps of the C# binding: statuses as exceptions, addresses as IntPtr, strings as UTF-8. Every class that SWIG
 * makes is internal; bindings/csharp/src has the public ones.
 *
 * Errors need no delegates: after a call that can fail, managed code asks on the same thread what it recorded. The two
 * callbacks (log, sum over ranks) are static functions that never go away; see CallbackSlot. SWIG
 * passes each proxy as a HandleRef, so that it is reachable until the call returns. Finalizers destroy objects
 * that were not disposed, but not while the process ends. csharp_calls.i counts the calls on what users can dispose.
 */
%csconst(1);
%pragma(csharp) moduleclassmodifiers="internal static class"
%pragma(csharp) imclassclassmodifiers="internal static unsafe class"
%pragma(csharp) imclasscode=%{
  /// <summary>What this thread's last call recorded; takes it.</summary>
  [global::System.Runtime.InteropServices.DllImport("$dllimport", EntryPoint="CSharp_gsc_take_pending")]
  internal static extern int TakePending(out global::System.IntPtr message, out ErrorDetails details);

  /// <summary>Puts a memory barrier into every thread of the process. 0 if the system cannot.</summary>
  [global::System.Runtime.InteropServices.DllImport("$dllimport", EntryPoint="CSharp_gsc_barrier")]
  internal static extern int Barrier();

  /// <summary>sizeof(gsc_scaler_state).</summary>
  [global::System.Runtime.InteropServices.DllImport("$dllimport", EntryPoint="CSharp_gsc_state_size")]
  internal static extern int StateSize();

  /// <summary>sizeof(gsc_report).</summary>
  [global::System.Runtime.InteropServices.DllImport("$dllimport", EntryPoint="CSharp_gsc_report_size")]
  internal static extern int ReportSize();

  /// <summary>Has a context's messages sent to a function with a number; null: nowhere.</summary>
  [global::System.Runtime.InteropServices.DllImport("$dllimport", EntryPoint="CSharp_gsc_set_log")]
  internal static extern int SetLog(global::System.Runtime.InteropServices.HandleRef context,
                                    CallbackSlot.LogFunction log, global::System.IntPtr slot);

  /// <summary>Sets a function with a number as the scaler's reducer; null: none.</summary>
  [global::System.Runtime.InteropServices.DllImport("$dllimport", EntryPoint="CSharp_gsc_set_reducer")]
  internal static extern int SetReducer(global::System.Runtime.InteropServices.HandleRef scaler,
                                        CallbackSlot.SumFunction sum, global::System.IntPtr slot);
%}

%{
#include "barrier.h"

SWIGEXPORT int SWIGSTDCALL CSharp_gsc_barrier(void) { return gsc_barrier(); }
SWIGEXPORT int SWIGSTDCALL CSharp_gsc_take_pending(const char **message, gsc_error *details) {
  *message = NULL;
  return gsc_take_pending(message, details);
}
SWIGEXPORT int SWIGSTDCALL CSharp_gsc_state_size(void) { return (int)sizeof(gsc_scaler_state); }
SWIGEXPORT int SWIGSTDCALL CSharp_gsc_report_size(void) { return (int)sizeof(gsc_report); }
SWIGEXPORT int SWIGSTDCALL CSharp_gsc_set_log(void *context, gsc_log_fn log, void *slot) {
  return gsc_pending = gsc_context_set_log((gsc_context *)context, log, slot);
}
SWIGEXPORT int SWIGSTDCALL CSharp_gsc_set_reducer(void *scaler, gsc_all_reduce_fn sum, void *slot) {
  const gsc_reducer reducer = {(uint32_t)sizeof reducer, 0, sum, slot};
  return gsc_pending = gsc_scaler_set_reducer((gsc_scaler *)scaler, sum ? &reducer : NULL);
}
%}

/* Statuses and the values of calls that record theirs. */
%typemap(ctype) gsc_status "int"
%typemap(imtype) gsc_status "int"
%typemap(cstype) gsc_status "void"
%typemap(out) gsc_status {
  if ($1 != GSC_OK) gsc_pending = $1;
  $result = $1;
}
%typemap(csout, excode = "") gsc_status { if ($imcall != 0) NativeError.ThrowPending(); }
%typemap(csout, excode = "")
    int32_t, int, uint32_t, unsigned int, int64_t, long, long long, float, double {
    var result = $imcall;
    NativeError.ThrowPending();
    return result;
  }
%typemap(csout, excode = "") SWIGTYPE * {
    global::System.IntPtr address = $imcall;
    NativeError.ThrowPending();
    return address == global::System.IntPtr.Zero ? null : new $csclassname(address, $owner);
  }
%typemap(csconstruct, excode = "") SWIGTYPE %{: this($imcall, true) {
    NativeError.ThrowPending();
  }
%}
%typemap(out) gsc_tensor_diagnosis, gsc_history_entry, gsc_recommendation {
  $&1_ltype copy = ($&1_ltype)gsc_swig_allocate(sizeof $1);
  if (copy) *copy = $1;
  $result = copy;
}
%typemap(csout, excode = "") gsc_tensor_diagnosis, gsc_history_entry, gsc_recommendation {
    $&csclassname result = new $&csclassname($imcall, true);
    NativeError.ThrowPending();
    return result;
  }

/* Fields. */
%typemap(csvarout, excode = "") int32_t, uint32_t, int64_t, float, double %{
    get { return $imcall; }
%}

/* Addresses. */
%typemap(ctype) void *ADDRESS "void *"
%typemap(imtype, out = "global::System.IntPtr") void *ADDRESS "global::System.IntPtr"
%typemap(cstype) void *ADDRESS "global::System.IntPtr"
%typemap(csin) void *ADDRESS "$csinput"
%typemap(in) void *ADDRESS { $1 = ($1_ltype)$input; }
%typemap(out) void *ADDRESS { $result = (void *)$1; }
%typemap(csvarout, excode = "") void *ADDRESS %{
    get { return $imcall; }
%}

/* Text: UTF-8 on both sides; managed code adds the terminating zero. */
%typemap(ctype) const char *, char[ANY] "char *"
%typemap(imtype, out = "global::System.IntPtr") const char *, char[ANY] "byte[]"
%typemap(cstype) const char *, char[ANY] "string"
%typemap(csin) const char * "Text.ToNative($csinput)"
%typemap(in) const char * { $1 = ($1_ltype)$input; }
%typemap(out) const char * { $result = (char *)$1; }
%typemap(out) char[ANY] { $result = $1; }
%typemap(csout, excode = "") const char * {
    global::System.IntPtr text = $imcall;
    NativeError.ThrowPending();
    return Text.FromNative(text);
  }
%typemap(csvarout, excode = "") char[ANY] %{
    get { return Text.FromNative($imcall); }
%}

/* Host memory, which managed code has pinned, as its address and size. */
%typemap(ctype) void *buffer, const void *buffer "void *"
%typemap(imtype) void *buffer, const void *buffer "global::System.IntPtr"
%typemap(cstype) void *buffer, const void *buffer "global::System.IntPtr"
%typemap(csin) void *buffer, const void *buffer "$csinput"
%typemap(in) void *buffer, const void *buffer { $1 = ($1_ltype)$input; }

%typemap(csclassmodifiers) SWIGTYPE "internal class"
%typemap(cscode) SWIGTYPE %{
  /// <summary>What the object reads and writes: kept alive as long as this is.</summary>
  internal object Kept { get; set; }

  internal global::System.IntPtr Address { get { return swigCPtr.Handle; } }
%}

/* While Mono ends the process, a finalizer would wait up to 40 s for a lock that a stopped thread holds. */
%typemap(csdispose) SWIGTYPE %{
  ~$csclassname() {
    if (!global::System.Environment.HasShutdownStarted) {
      Dispose(false);
    }
  }

  public void Dispose() {
    Dispose(true);
    global::System.GC.SuppressFinalize(this);
  }
%}

/* An array of tensors for one call, which holds their memory. */
%typemap(csdisposing, methodname = "Dispose", methodmodifiers = "protected", parameters = "bool disposing")
    gsc_tensor_array, struct gsc_tensor_array {
    lock (this) {
      if (swigCPtr.Handle != global::System.IntPtr.Zero) {
        $imcall;
        swigCPtr = default(global::System.Runtime.InteropServices.HandleRef);
        if (Kept != null) {
          ((Owners)Kept).Release();
        }
      }
    }
  }

%rename("%(camelcase)s", %$isfunction) "";
%rename("%(camelcase)s", %$isvariable) "";

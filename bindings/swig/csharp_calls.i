/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects that users dispose: java_calls.i in C#. Each call counts as a use of its object and of its arguments until it
 * returns (Uses). The proxies have no address as a member, so that a method whose type has no typemap here does not
 * compile.
 */
%define GSC_COUNTED_OBJECT(TYPE, NAME)
%typemap(csbody) TYPE, struct TYPE %{
  internal readonly Uses Uses;

  internal $csclassname(global::System.IntPtr cPtr, bool cMemoryOwn) {
    Uses = new Uses("NAME", cPtr, NativeCallsPINVOKE.delete_$csclassname);
  }

  internal static global::System.Runtime.InteropServices.HandleRef Begin($csclassname argument) {
    return argument == null ? default(global::System.Runtime.InteropServices.HandleRef) : argument.Uses.Begin(argument);
  }

  /// <summary>Of an argument whose Begin returned the handle, or was not reached if that is of nothing.</summary>
  internal static void End($csclassname argument, global::System.Runtime.InteropServices.HandleRef handle) {
    if (handle.Wrapper != null) {
      argument.Uses.End();
    }
  }
%}
%typemap(cscode) TYPE, struct TYPE %{
  /// <summary>What the object reads and writes: kept alive as long as this is.</summary>
  internal object Kept { get; set; }
%}
%typemap(csdisposing, methodname = "Dispose", methodmodifiers = "protected", parameters = "bool disposing")
    TYPE, struct TYPE {
    // A constructor whose arguments are refused leaves none.
    if (Uses != null) {
      Uses.Close();
    }
  }
%typemap(csin,
         pre = "    global::System.Runtime.InteropServices.HandleRef $csinputHandle = default(global::System.Runtime.InteropServices.HandleRef);",
         post = "      $csclassname.End($csinput, $csinputHandle);")
    TYPE *, const TYPE *, struct TYPE *, const struct TYPE * "$csinputHandle = $csclassname.Begin($csinput)"
%enddef
GSC_COUNTED_OBJECT(gsc_context, Context)
GSC_COUNTED_OBJECT(gsc_tensor_list, TensorList)
GSC_COUNTED_OBJECT(gsc_scaler, GradScaler)
GSC_COUNTED_OBJECT(gsc_optimizer, Optimizer)

%define GSC_COUNTED_CALL(TYPE, RETURN)
%typemap(csout, excode = "") TYPE {
    global::System.Runtime.InteropServices.HandleRef swigCPtr = Uses.Begin(this);
    try {
      var result = $imcall;
      NativeError.ThrowPending();
      return RETURN;
    } finally {
      Uses.End();
    }
  }
%enddef
GSC_COUNTED_CALL(int, result)
GSC_COUNTED_CALL(int32_t, result)
GSC_COUNTED_CALL(int64_t, result)
GSC_COUNTED_CALL(float, result)
GSC_COUNTED_CALL(double, result)
GSC_COUNTED_CALL(const char *, Text.FromNative(result))
GSC_COUNTED_CALL(SWIGTYPE *, new $csclassname(result, $owner))
%typemap(csout, excode = "") gsc_status {
    global::System.Runtime.InteropServices.HandleRef swigCPtr = Uses.Begin(this);
    try {
      if ($imcall != 0) NativeError.ThrowPending();
    } finally {
      Uses.End();
    }
  }

/* SPDX-License-Identifier: Apache-2.0
 *
 * Objects that users close: each call counts as a use of its object and of its arguments until it returns (Uses), so
 * that close() from another thread or from a callback destroys nothing that a call works on. To be included before the
 * declarations of these objects and after those of everything else. The proxies have no address as a member, so that a
 * method whose type has no typemap here does not compile.
 */
%define GSC_COUNTED_OBJECT(TYPE, NAME)
%typemap(javabody) TYPE, struct TYPE %{
  private final Uses uses;
  /**
   * What the object reads and writes: kept alive as long as this is, closed or not. A call holds this until it returns,
   * and may have called back what closed it.
   */
  private Object[] kept;

  $javaclassname(long cPtr, boolean cMemoryOwn) {
    uses = new Uses(this, "NAME", cPtr, NativeCallsJNI::delete_$javaclassname);
  }

  void keep(Object... objects) {
    kept = objects;
  }

  Uses uses() {
    return uses;
  }

  static long begin($javaclassname argument) {
    return argument == null ? 0 : argument.uses.begin();
  }

  /** Of an argument whose begin() returned the address, or was not reached if that is 0. */
  static void end($javaclassname argument, long address) {
    if (address != 0) {
      argument.uses.end();
    }
  }
%}
%typemap(javadestruct, methodname = "close", methodmodifiers = "public", parameters = "") TYPE, struct TYPE {
    uses.close();
  }
%typemap(javain, pre = "    long $javainputAddress = 0;", post = "      $javaclassname.end($javainput, $javainputAddress);")
    TYPE *, const TYPE *, struct TYPE *, const struct TYPE *
    "$javainputAddress = $javaclassname.begin($javainput)"
%enddef
GSC_COUNTED_OBJECT(gsc_context, Context)
GSC_COUNTED_OBJECT(gsc_tensor_list, TensorList)
GSC_COUNTED_OBJECT(gsc_scaler, GradScaler)
GSC_COUNTED_OBJECT(gsc_optimizer, Optimizer)

%define GSC_COUNTED_CALL(TYPE, RESULT)
%typemap(javaout) TYPE {
    final long swigCPtr = uses.begin();
    try {
      RESULT;
    } finally {
      uses.end();
    }
  }
%enddef
GSC_COUNTED_CALL(gsc_status, $jnicall)
GSC_COUNTED_CALL(int, return $jnicall)
GSC_COUNTED_CALL(int32_t, return $jnicall)
GSC_COUNTED_CALL(int64_t, return $jnicall)
GSC_COUNTED_CALL(float, return $jnicall)
GSC_COUNTED_CALL(double, return $jnicall)
GSC_COUNTED_CALL(const char *, return Text.fromNative($jnicall))
GSC_COUNTED_CALL(SWIGTYPE *, return new $javaclassname($jnicall, $owner))

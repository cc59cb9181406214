/* SPDX-License-Identifier: Apache-2.0
 *
 * What the library calls back in Java: the log and the sum over ranks. Native code keeps nothing of Java's but a
 * number, which CallbackSlot looks up; so nothing of Java's can be gone when it is called. The library calls on the
 * thread whose call caused it, which is inside of a native method: it is attached, and FindClass sees this package.
 */
%{
static JavaVM *gsc_java_vm = NULL;

/* The environment and CallbackSlot's method; 0 if they cannot be found. */
static int gsc_java_callback(const char *name, const char *signature, JNIEnv **env, jclass *type, jmethodID *method) {
  if ((*gsc_java_vm)->GetEnv(gsc_java_vm, (void **)env, JNI_VERSION_1_6) != JNI_OK) return 0;
  *type = (**env)->FindClass(*env, "io/github/gradscaler/CallbackSlot");
  *method = *type ? (**env)->GetStaticMethodID(*env, *type, name, signature) : NULL;
  if (*method) return 1;
  (**env)->ExceptionClear(*env);
  return 0;
}

static void gsc_java_log(void *user, int32_t level, const char *message) {
  JNIEnv *env;
  jclass type;
  jmethodID method;
  if (!gsc_java_callback("log", "(JI[B)V", &env, &type, &method)) return;
  jbyteArray text = gsc_java_bytes(env, message);
  if (text) (*env)->CallStaticVoidMethod(env, type, method, (jlong)(intptr_t)user, (jint)level, text);
  (*env)->ExceptionClear(env);
  if (text) (*env)->DeleteLocalRef(env, text);
  (*env)->DeleteLocalRef(env, type);
}

static int32_t gsc_java_sum(void *user, double *values, int64_t count, gsc_stream stream) {
  JNIEnv *env;
  jclass type;
  jmethodID method;
  if (!gsc_java_callback("sum", "(JJJJ)Z", &env, &type, &method)) return 1;
  jboolean done = (*env)->CallStaticBooleanMethod(env, type, method, (jlong)(intptr_t)user, (jlong)(intptr_t)values,
                                                  (jlong)count, (jlong)(intptr_t)stream);
  if ((*env)->ExceptionCheck(env)) {
    (*env)->ExceptionClear(env);
    done = JNI_FALSE;
  }
  (*env)->DeleteLocalRef(env, type);
  return !done;
}

JNIEXPORT void JNICALL Java_io_github_gradscaler_NativeCallsJNI_setLog(JNIEnv *env, jclass type, jobject owner,
                                                                      jlong context, jlong slot) {
  (void)type;
  (void)owner;
  (*env)->GetJavaVM(env, &gsc_java_vm);
  gsc_pending = gsc_context_set_log((gsc_context *)(intptr_t)context, slot ? gsc_java_log : NULL,
                                    (void *)(intptr_t)slot);
  gsc_java_failed(env);
}

JNIEXPORT void JNICALL Java_io_github_gradscaler_NativeCallsJNI_setReducer(JNIEnv *env, jclass type, jobject owner,
                                                                          jlong scaler, jlong slot) {
  const gsc_reducer reducer = {(uint32_t)sizeof reducer, 0, gsc_java_sum, (void *)(intptr_t)slot};
  (void)type;
  (void)owner;
  (*env)->GetJavaVM(env, &gsc_java_vm);
  gsc_pending = gsc_scaler_set_reducer((gsc_scaler *)(intptr_t)scaler, slot ? &reducer : NULL);
  gsc_java_failed(env);
}
%}

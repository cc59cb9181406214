/* SPDX-License-Identifier: Apache-2.0
 *
 * Methods of the objects, language-neutral. A method without a body calls the C function of the same name; one with a
 * body turns output pointers into results and records its status for the `out` typemaps. SWIG makes a C function
 * <struct>_<method> of a body, which must not be one of the library's: such methods end in an underscore, which the
 * language file's renames take off (%(camelcase)s and %(lowercamelcase)s do by themselves). GSC_VALUE makes a method that
 * returns what a call writes to `value`.
 */
%define GSC_VALUE(TYPE, METHOD, CALL)
  TYPE METHOD {
    TYPE value = 0;
    gsc_record(CALL);
    return value;
  }
%enddef

%extend gsc_context {
#if defined(SWIGCSHARP)
  /* `vulkan` is the caller's device; NULL: that of the options. */
  gsc_context(const gsc_context_options *options, const gscx_vulkan_device *vulkan) {
    gsc_context *self = NULL;
    gsc_record(vulkan ? gscx_context_create_vulkan(options, vulkan, &self) : gsc_context_create(options, &self));
    return self;
  }
#else
  gsc_context(const gsc_context_options *options) {
    gsc_context *self = NULL;
    gsc_record(gsc_context_create(options, &self));
    return self;
  }
#endif
  ~gsc_context() { gsc_context_destroy($self); }
  GSC_VALUE(int32_t, device_type_(), gsc_context_get_device($self, &value, NULL))
  GSC_VALUE(int32_t, device_index_(), gsc_context_get_device($self, NULL, &value))
  GSC_VALUE(int32_t, cpu_target_(), gsc_context_get_cpu($self, &value, NULL))
  GSC_VALUE(int32_t, num_threads_(), gsc_context_get_cpu($self, NULL, &value))
  GSC_VALUE(int64_t, host_bytes_(), gsc_context_get_memory($self, &value, NULL))
  GSC_VALUE(int64_t, device_bytes_(), gsc_context_get_memory($self, NULL, &value))
  /* Stateless operations on tensors of this device; device scalars are addresses in its memory. */
  gsc_status unscale_check_(const gsc_tensor_array *tensors, void *found_inf, void *inv_scale, gsc_stream stream) {
    return gsc_ops_unscale_check($self, gsc_tensor_items(tensors), gsc_tensor_items_count(tensors), (float *)found_inf,
                                 (const float *)inv_scale, stream);
  }
  gsc_status update_scale_(void *scale, void *growth_tracker, void *found_inf, double growth_factor,
                          double backoff_factor, int32_t growth_interval, gsc_stream stream) {
    return gsc_ops_update_scale($self, (float *)scale, (int32_t *)growth_tracker, (const float *)found_inf,
                                growth_factor, backoff_factor, growth_interval, stream);
  }
  gsc_status scale_(const gsc_tensor_array *src, const gsc_tensor_array *dst, void *factor, gsc_stream stream) {
    if (gsc_tensor_items_count(src) != gsc_tensor_items_count(dst)) return gsc_lengths_differ();
    return gsc_ops_scale($self, gsc_tensor_items(src), gsc_tensor_items(dst), gsc_tensor_items_count(src),
                         (const float *)factor, stream);
  }
  gsc_status axpby_(double a, const gsc_tensor_array *x, double b, const gsc_tensor_array *y, gsc_stream stream) {
    if (gsc_tensor_items_count(x) != gsc_tensor_items_count(y)) return gsc_lengths_differ();
    return gsc_ops_axpby($self, a, gsc_tensor_items(x), b, gsc_tensor_items(y), gsc_tensor_items_count(x), stream);
  }
  gsc_status cast_(const gsc_tensor_array *src, const gsc_tensor_array *dst, gsc_stream stream) {
    if (gsc_tensor_items_count(src) != gsc_tensor_items_count(dst)) return gsc_lengths_differ();
    return gsc_ops_cast($self, gsc_tensor_items(src), gsc_tensor_items(dst), gsc_tensor_items_count(src), stream);
  }
  /* `weights` may be null. */
  gsc_status convert_state_(const gsc_tensor_array *src, const gsc_tensor_array *weights, const gsc_tensor_array *dst,
                            gsc_stream stream) {
    if (gsc_tensor_items_count(src) != gsc_tensor_items_count(dst)) return gsc_lengths_differ();
    if (weights && weights->count != src->count) return gsc_lengths_differ();
    return gsc_ops_convert_state($self, gsc_tensor_items(src), gsc_tensor_items(weights), gsc_tensor_items(dst),
                                      gsc_tensor_items_count(src), stream);
  }
  gsc_status norm_(const gsc_tensor_array *tensors, int32_t norm_type, void *out_norm, void *out_tensor_norms,
                  gsc_stream stream) {
    return gsc_ops_norm($self, gsc_tensor_items(tensors), gsc_tensor_items_count(tensors), norm_type,
                        (double *)out_norm, (double *)out_tensor_norms, stream);
  }
}

%extend gsc_tensor_array {
  gsc_tensor_array(int64_t capacity) { return gsc_tensor_array_new(capacity); }
  ~gsc_tensor_array() { gsc_tensor_array_free($self); }
  int64_t count_() { return $self->count; }
  gsc_status add_(void *data, int64_t count, int32_t dtype, const char *name) {
    gsc_tensor_array_add($self, data, count, dtype, name);
    return gsc_pending;
  }
  /* Of the last tensor: one of scale_dtype(dtype) for each 32 elements. */
  void set_scales_(void *data) { gsc_tensor_array_set_scales($self, data); }
}

%extend gsc_numbers {
  gsc_numbers(int64_t count) { return gsc_numbers_new(count); }
  ~gsc_numbers() { free($self); }
  int64_t count_() { return $self->count; }
  int64_t get_(int64_t index) {
    const int64_t *number = gsc_numbers_at($self, index);
    return number ? *number : 0;
  }
  gsc_status set_(int64_t index, int64_t value) {
    int64_t *number = gsc_numbers_at($self, index);
    if (number) *number = value;
    return gsc_pending;
  }
}

%extend gsc_tensor_list {
  gsc_tensor_list(gsc_context *context, const gsc_tensor_array *tensors) {
    gsc_tensor_list *self = NULL;
    gsc_record(gsc_tensor_list_create(context, gsc_tensor_items(tensors), gsc_tensor_items_count(tensors),
                                      tensors ? (const char *const *)tensors->names : NULL, &self));
    return self;
  }
  ~gsc_tensor_list() { gsc_tensor_list_destroy($self); }
  GSC_VALUE(int64_t, count_(), gsc_tensor_list_get_count($self, &value))
  gsc_status get_(int64_t index, gsc_tensor *out_tensor) { return gsc_tensor_list_get_tensor($self, index, out_tensor); }
  gsc_status set_pointers_(const gsc_tensor_array *tensors, gsc_stream stream) {
    return gsc_rebind($self, tensors, stream);
  }
  gsc_status set_device_factor_(void *device_factor) {
    return gsc_tensor_list_set_device_factor($self, (const float *)device_factor);
  }
  gsc_status set_device_norms_(void *device_norms, int64_t count) {
    return gsc_tensor_list_set_device_norms($self, (double *)device_norms, count);
  }
  /* `present` may be null: all are. */
  gsc_status set_present_(const gsc_numbers *present, gsc_stream stream) {
    return gsc_mark_present($self, present, stream);
  }
  const char *get_name_(int64_t index) {
    const char *name = "";
    gsc_record(gsc_tensor_list_get_name($self, index, &name));
    return name;
  }
  gsc_diagnoses *diagnose_(gsc_stream stream) { return gsc_diagnoses_read($self, stream); }
}

%extend gsc_diagnoses {
  ~gsc_diagnoses() { free($self); }
  int64_t count_() { return $self->count; }
  gsc_tensor_diagnosis get_(int64_t index) { return gsc_diagnoses_at($self, index); }
  int64_t histogram_(int64_t index, int32_t bin) { return gsc_diagnoses_bin($self, index, bin); }
  gsc_recommendation recommend_(float current_scale, int32_t dtype) {
    return gsc_diagnoses_recommend($self, current_scale, dtype);
  }
}

%extend gsc_history {
  ~gsc_history() { free($self); }
  int64_t count_() { return $self->count; }
  gsc_history_entry get_(int64_t index) { return gsc_history_at($self, index); }
}

%extend gsc_scaler {
  gsc_scaler(gsc_context *context, const gsc_scaler_options *options) {
    gsc_scaler *self = NULL;
    gsc_record(gsc_scaler_create(context, options, &self));
    return self;
  }
  ~gsc_scaler() { gsc_scaler_destroy($self); }
  gsc_status scale_(const gsc_tensor_array *src, const gsc_tensor_array *dst, gsc_stream stream) {
    if (gsc_tensor_items_count(src) != gsc_tensor_items_count(dst)) return gsc_lengths_differ();
    return gsc_scaler_scale($self, gsc_tensor_items(src), gsc_tensor_items(dst), gsc_tensor_items_count(src), stream);
  }
  gsc_status unscale(gsc_tensor_list *grads, gsc_stream stream);
  gsc_status check(gsc_tensor_list *grads, gsc_stream stream);
  gsc_status check_range(gsc_tensor_list *grads, int64_t first, int64_t count, gsc_stream stream);
  gsc_status clip_grad_norm(gsc_tensor_list *grads, double max_norm, int32_t norm_type, gsc_stream stream);
  gsc_status clip_grad_value(gsc_tensor_list *grads, double clip_value, gsc_stream stream);
  gsc_status step(gsc_optimizer *optimizer, gsc_stream stream);
  GSC_VALUE(int64_t, step_slice_(gsc_optimizer *optimizer, int64_t max_bytes, gsc_stream stream),
            gsc_scaler_step_slice($self, optimizer, max_bytes, &value, stream))
  GSC_VALUE(int32_t, should_step_(gsc_tensor_list *grads, gsc_stream stream),
            gsc_scaler_should_step_sync($self, grads, &value, stream))
  gsc_status update(gsc_stream stream);
  gsc_status step_and_update(gsc_optimizer *optimizer, gsc_stream stream);
  gsc_status discard(gsc_tensor_list *grads);
  gsc_status set_scale(float scale, gsc_stream stream);
  GSC_VALUE(float, get_scale_(gsc_stream stream), gsc_scaler_get_scale_sync($self, &value, stream))
  int32_t is_enabled_() { return gsc_read_options($self).enabled; }
  gsc_status get_report_(const gsc_tensor_list *grads, gsc_report *out_report, gsc_stream stream) {
    return gsc_scaler_get_report_sync($self, grads, out_report, stream);
  }
  /* `out_report` is the address of pinned memory of sizeof(gsc_report) bytes. */
  gsc_status read_report_async_(const gsc_tensor_list *grads, void *out_report, gsc_stream stream) {
    return gsc_scaler_read_report_async($self, grads, (gsc_report *)out_report, stream);
  }
  gsc_history *history_(gsc_stream stream) { return gsc_history_read($self, stream); }
  gsc_status device_state_(const gsc_tensor_list *grads, gsc_device_state *out_state) {
    return gsc_scaler_get_device_state($self, grads, out_state);
  }
  gsc_status get_state_(gsc_scaler_state *out_state, gsc_stream stream) {
    return gsc_scaler_get_state_sync($self, out_state, stream);
  }
  gsc_status set_state(const gsc_scaler_state *state, gsc_stream stream);
  gsc_status get_options(gsc_scaler_options *out_options);
  gsc_status set_options(const gsc_scaler_options *options, gsc_stream stream);
  /* PyTorch's names for single options. */
  double get_growth_factor_() { return gsc_read_options($self).growth_factor; }
  double get_backoff_factor_() { return gsc_read_options($self).backoff_factor; }
  int32_t get_growth_interval_() { return gsc_read_options($self).growth_interval; }
  gsc_status set_growth_factor_(double factor, gsc_stream stream) {
    gsc_scaler_options options = gsc_read_options($self);
    options.growth_factor = factor;
    return gsc_write_options($self, &options, stream);
  }
  gsc_status set_backoff_factor_(double factor, gsc_stream stream) {
    gsc_scaler_options options = gsc_read_options($self);
    options.backoff_factor = factor;
    return gsc_write_options($self, &options, stream);
  }
  gsc_status set_growth_interval_(int32_t interval, gsc_stream stream) {
    gsc_scaler_options options = gsc_read_options($self);
    options.growth_interval = interval;
    return gsc_write_options($self, &options, stream);
  }
}

%extend gsc_optimizer {
  /* model_copy may be null. state0..state3: the lists of the kind's slots in order, or all null. */
  gsc_optimizer(gsc_context *context, const gsc_optimizer_options *options, gsc_tensor_list *params,
                gsc_tensor_list *grads, gsc_tensor_list *model_copy, gsc_tensor_list *state0, gsc_tensor_list *state1,
                gsc_tensor_list *state2, gsc_tensor_list *state3) {
    gsc_optimizer *self = NULL;
    gsc_tensor_list *state[4];
    state[0] = state0;
    state[1] = state1;
    state[2] = state2;
    state[3] = state3;
    const int32_t count = state3 ? 4 : state2 ? 3 : state1 ? 2 : state0 ? 1 : 0;
    gsc_record(
        gsc_optimizer_create(context, options, params, grads, model_copy, count ? state : NULL, count, &self));
    return self;
  }
  ~gsc_optimizer() { gsc_optimizer_destroy($self); }
  GSC_VALUE(int32_t, add_group_(int64_t first, int64_t count, const gsc_optimizer_options *options),
            gsc_optimizer_add_group($self, first, count, options, &value))
  // gen-api: getters gsc_optimizer
  GSC_VALUE(int32_t, group_count_(), gsc_optimizer_get_group_count($self, &value))
  GSC_VALUE(int32_t, evaluating_(), gsc_optimizer_get_evaluating($self, &value))
  GSC_VALUE(int32_t, state_count_(), gsc_optimizer_get_state_count($self, &value))
  GSC_VALUE(int64_t, save_size_(), gsc_optimizer_get_save_size($self, &value))
  // gen-api: end
  gsc_status get_options(int32_t group, gsc_optimizer_options *out_options);
  gsc_status set_options(int32_t group, const gsc_optimizer_options *options, gsc_stream stream);
  gsc_status set_lr(int32_t group, double lr, gsc_stream stream);
  gsc_status set_device_lr_(int32_t group, void *device_lr, gsc_stream stream) {
    return gsc_optimizer_set_device_lr($self, group, (const float *)device_lr, stream);
  }
  gsc_status set_evaluating(int32_t evaluating, gsc_stream stream);
  gsc_status step(gsc_stream stream);
  gsc_status step_scaled_(void *inv_scale, void *found_inf, gsc_stream stream) {
    return gsc_optimizer_step_scaled($self, (const float *)inv_scale, (const float *)found_inf, stream);
  }
  gsc_status zero_grads(gsc_stream stream);
  const char *state_name_(int32_t slot) {
    const char *name = "";
    gsc_record(gsc_optimizer_get_state($self, slot, NULL, &name));
    return name;
  }
  gsc_status state_tensor_(int32_t slot, int64_t index, gsc_tensor *out_tensor) {
    gsc_tensor_list *list = NULL;
    const gsc_status status = gsc_optimizer_get_state($self, slot, &list, NULL);
    return status == GSC_OK ? gsc_tensor_list_get_tensor(list, index, out_tensor) : status;
  }
  /* The address of the scales of a slot's tensor, 0 if it has none. */
  int64_t state_scales_(int32_t slot, int64_t index) {
    gsc_tensor_list *list = NULL;
    gsc_tensor tensor = {0};
    if (gsc_record(gsc_optimizer_get_state($self, slot, &list, NULL))) {
      gsc_record(gsc_tensor_list_get_tensor(list, index, &tensor));
    }
    return (int64_t)(intptr_t)tensor.scale;
  }
  GSC_VALUE(int64_t, steps_applied_(gsc_stream stream), gsc_optimizer_get_steps_sync($self, &value, NULL, stream))
  GSC_VALUE(int64_t, steps_skipped_(gsc_stream stream), gsc_optimizer_get_steps_sync($self, NULL, &value, stream))
  GSC_VALUE(int64_t, unchanged_(gsc_stream stream), gsc_optimizer_get_unchanged_sync($self, &value, stream))
  gsc_status set_steps(int64_t applied, int64_t skipped, gsc_stream stream);
  gsc_numbers *tensor_steps_(gsc_stream stream) { return gsc_tensor_steps_read($self, stream); }
  gsc_status set_tensor_steps_(const gsc_numbers *steps, gsc_stream stream) {
    return gsc_optimizer_set_tensor_steps($self, steps->items, steps->count, stream);
  }
  gsc_status set_offsets_(const gsc_numbers *offsets, gsc_stream stream) {
    return gsc_optimizer_set_offsets($self, offsets->items, offsets->count, stream);
  }
  gsc_status save_(void *buffer, int64_t size, gsc_stream stream) {
    return gsc_optimizer_save_sync($self, buffer, size, stream);
  }
  gsc_status load_(const void *buffer, int64_t size, gsc_stream stream) {
    return gsc_optimizer_load_sync($self, buffer, size, stream);
  }
}

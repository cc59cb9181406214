/* SPDX-License-Identifier: Apache-2.0 */
#ifndef GRADSCALER_GRADSCALER_H
#define GRADSCALER_GRADSCALER_H
/*
 * gradscaler: loss scaling and fused optimizer steps for mixed-precision training.
 *
 * fp16 gradients underflow. The cure is to multiply the loss by a scale before the backward pass and to divide the
 * gradients by it afterwards. If the scale is too large, gradients overflow to inf or NaN: then the step is skipped and
 * the scale is lowered. This library keeps the scale and does everything that follows the backward pass:
 *
 *     check for inf/NaN -> unscale -> norm -> clip -> optimizer -> write 16-bit weights -> update the scale
 *
 * It makes two passes over memory, whatever the number of tensors. A step allocates nothing and never waits for the
 * device. The scale, the decision to skip and the counters stay in device memory until you ask for them.
 *
 * Four objects do the work:
 *   gsc_context      a device: the CPU, or a GPU through CUDA
 *   gsc_tensor_list  your buffers, validated once and used in every step
 *   gsc_optimizer    AdamW, SGD or another kind, over a list of parameters and a list of gradients
 *   gsc_scaler       the scale, its policy, counters and history
 *
 * A training loop with fp16 weights and gradients and fp32 master weights, without error checks:
 *
 *     gsc_tensor p = GSC_TENSOR_INIT(master, n, GSC_FP32);    // master weights: the optimizer updates these
 *     gsc_tensor w = GSC_TENSOR_INIT(weights, n, GSC_FP16);   // the model's weights: a copy, rounded in the same pass
 *     gsc_tensor g = GSC_TENSOR_INIT(gradients, n, GSC_FP16); // written by the backward pass
 *     gsc_tensor one = GSC_TENSOR_INIT(ones, 1, GSC_FP32), seed = GSC_TENSOR_INIT(loss_gradient, 1, GSC_FP32);
 *     gsc_context *ctx; gsc_tensor_list *params, *copy, *grads; gsc_optimizer *adamw; gsc_scaler *scaler;
 *
 *     gsc_context_create(NULL, &ctx);                                          // the CPU, all its threads
 *     gsc_tensor_list_create(ctx, &p, 1, NULL, &params);
 *     gsc_tensor_list_create(ctx, &w, 1, NULL, &copy);
 *     gsc_tensor_list_create(ctx, &g, 1, NULL, &grads);
 *     gsc_optimizer_create(ctx, NULL, params, grads, copy, NULL, 0, &adamw);   // AdamW with its defaults
 *     gsc_scaler_create(ctx, NULL, &scaler);                                   // PyTorch's policy, scale 65536
 *     gsc_ops_cast(ctx, &p, &w, 1, NULL);                                      // the first weights
 *     for (;;) {
 *         gsc_scaler_scale(scaler, &one, &seed, 1, NULL);  // loss_gradient = 1 * scale, on the device
 *         backward(loss_gradient);                         // yours: starts from it and fills `gradients`
 *         gsc_scaler_step(scaler, adamw, NULL);            // skipped if a gradient is inf or NaN
 *         gsc_scaler_update(scaler, NULL);                 // grows the scale, or backs it off
 *     }
 *
 * If you know torch.amp.GradScaler:
 *   scaler.scale(loss)                    gsc_scaler_scale
 *   scaler.unscale_(optimizer)            gsc_scaler_unscale; only if your code reads the gradients
 *   clip_grad_norm_, clip_grad_value_     gsc_scaler_clip_grad_norm, gsc_scaler_clip_grad_value; needs no unscale
 *   scaler.step(optimizer)                gsc_scaler_step
 *   scaler.update()                       gsc_scaler_update
 *   scaler.get_scale()                    gsc_scaler_get_scale_sync; waits for the device, as in PyTorch
 *   scaler.state_dict(), load_state_dict  gsc_scaler_get_state_sync, gsc_scaler_set_state
 *   was the step skipped?                 gsc_scaler_get_report_sync, or gsc_scaler_read_report_async without waiting
 *
 * Contents, in the order in which a newcomer needs them:
 *    1. Errors                                       8. The policy and its presets
 *    2. The simple loop                              9. Several devices, several ranks
 *    3. Reports and history                         10. Devices, and embedding in an application
 *    4. Clipping, and your own optimizer            11. Diagnosis and histograms
 *    5. Parameter groups and learning rates         12. Operations without a scaler
 *    6. Gradient accumulation and overlap           13. The library, and its function table
 *    7. Saving and restoring
 *
 * Conventions:
 *   - Ownership. You own the stream and every gradient, parameter and state buffer that you pass in. Keep a buffer
 *     valid while a list refers to it and until the work on it is done. The library owns what its create functions
 *     return.
 *   - Destruction. A destroy function releases your reference; NULL does nothing. Destroy in any order and from any
 *     thread, with CUDA also while work is pending: device memory goes to its next owner behind the work. An object lives
 *     until the last object that uses it is gone. A captured graph keeps no objects alive: end its replays before you
 *     destroy what it uses.
 *   - Errors. A function that can fail returns gsc_status, GSC_OK = 0. On error, outputs and everything else are
 *     unchanged unless a comment says otherwise. No call prints or aborts.
 *   - Parameters come in the order object, inputs, outputs, stream.
 *   - Memory. "Device memory" is memory of the context's device: plain host memory on the CPU. A "device scalar" is a
 *     single number in device memory, passed by its address.
 *   - Streams. `stream` is the CUDA stream (cudaStream_t or CUstream) on which the work is enqueued. NULL is the default
 *     stream. The CPU ignores it: the work is done when the call returns.
 *   - Order. Calls that use the same scaler, list or optimizer run on the device in the order in which you make them,
 *     even on different streams. A call on an optimizer uses all its lists. The library does not order your kernels on other streams: use an event. A graph
 *     capture keeps this order among its calls only. You order the graph with the work outside it.
 *   - Waiting. A function with a stream waits for the device only if its name ends in _sync. On GPUs without memory
 *     pools, operations without a scaler also wait.
 *   - Setup. Functions that create or destroy objects, and gsc_optimizer_add_group, may wait for the device. Other
 *     functions without a stream do no device work.
 *   - Threads. Objects have no locks: use an object from one thread at a time. Different objects may be used at once,
 *     and any number of threads may share a context. Only gsc_scaler_step_slice runs on several threads at once with
 *     the same objects. A scaler also uses each list that it has checked, until gsc_scaler_update, discard, set_scale or
 *     set_state, or until it is destroyed. Until then, use such a list only where you may use the scaler.
 *   - Callbacks. A callback may use all objects that the running call does not use. The objects of the running call may
 *     be read and destroyed in it; the library frees them when the call returns. Changing one, or saving an optimizer of
 *     the call, fails with BAD_STATE.
 *   - Exceptions. A callback should not throw. If it does, the callback's comment gives the result, provided that the
 *     program and the library use the same C++ runtime (GCC's libstdc++ or LLVM's libc++). If they differ, the exception
 *     ends the process.
 *   - Floating point. The calling thread's rounding mode, flush-to-zero and traps do not affect results, and a call
 *     restores them. Callbacks run with the defaults: round to nearest, subnormals kept, no traps.
 *   - Structs. A struct that begins with struct_size may grow in later versions. Set struct_size to the sizeof of the
 *     struct, also of one that a call fills in. The _options_init functions do it for you. Set reserved fields to 0. The
 *     program may be older or newer than the library: a field that the program does not know has its default, one that
 *     the library does not know must be 0, or the call fails with UNSUPPORTED. In results it becomes 0.
 *   - Experiments. An experimental backend may change in any release. Its header says what differs there:
 *     <gradscaler/vulkan.h>.
 *   - Tags. @default, @range, @enum, @nullable and their like state facts, from which the bindings are generated. An array
 *     and its length are @count{array length}; a device scalar is @device{name}.
 *
 * All functions: since 0.1.
 */
#include <stdint.h>

#if defined(GSC_STATIC)
#define GSC_API
#elif defined(_WIN32)
#if defined(GSC_BUILDING)
#define GSC_API __declspec(dllexport)
#else
#define GSC_API __declspec(dllimport)
#endif
#elif defined(__GNUC__)
#define GSC_API __attribute__((visibility("default")))
#else
#define GSC_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** Product version this header belongs to. */
#define GSC_VERSION_MAJOR 0
#define GSC_VERSION_MINOR 1
#define GSC_VERSION_PATCH 0
/** ABI number: the N of libgradscaler.so.N. Functions and struct fields are only ever appended within one number. */
#define GSC_ABI_VERSION 1u

/* ---------------------------------------------------------------------------------------------------------------
 * 1. Errors
 * ------------------------------------------------------------------------------------------------------------ */

/** Result of every function that can fail: a constant of the enumeration below. */
typedef int32_t gsc_status;
/** Results of functions. Values are stable. @type{Status GSC_ERROR_} */
enum {
  GSC_OK = 0,
  /** An argument is null, out of range, inconsistent or of an unknown kind. */
  GSC_ERROR_INVALID_ARGUMENT = 1,
  /** The call is not allowed now, such as unscale twice between two updates. */
  GSC_ERROR_BAD_STATE = 2,
  /** Allocation of host or device memory failed. */
  GSC_ERROR_OUT_OF_MEMORY = 3,
  /** The device or backend is not available: no driver, no such device, or built without it. */
  GSC_ERROR_UNAVAILABLE = 4,
  /** A combination that this version does not support. */
  GSC_ERROR_UNSUPPORTED = 5,
  /** The device runtime reported an error; the message has its text. */
  GSC_ERROR_DEVICE = 6,
  /** The scale cannot be lowered any further (only with GSC_FLOOR_ERROR). */
  GSC_ERROR_SCALE_FLOOR = 7,
  /** One of your callbacks returned an error, broke its contract or threw. */
  GSC_ERROR_CALLBACK = 8,
  /** A bug in this library. Please report it. */
  GSC_ERROR_INTERNAL = 9,
  /** Gradient norms stay above their limit (only with GSC_SPIKE_ERROR). */
  GSC_ERROR_SPIKES = 10
};

/**
 * The message of the most recent failure on the calling thread, never NULL; "" if no call has failed since the thread
 * began or called gsc_error_clear. It names the function, the argument and, for tensors, the index. Successful calls
 * leave it as it is. It is valid until the next failing call on this thread or gsc_error_clear; copy it to keep it.
 *
 * One line of UTF-8. In names of tensors, control characters, quotes, backslashes, line separators and bytes that are
 * not UTF-8 are written as backslash, x and two hexadecimal digits.
 */
GSC_API const char *gsc_error_get_message(void);
/**
 * The most recent failure on a thread, in fields. Two examples:
 * `gsc_optimizer_create: state[1][7] has 64 elements, but params[7] has 128` has the function "gsc_optimizer_create",
 * the argument "state", index 1 and tensor 7.
 * `gsc_scaler_create: options.init_scale is 0; it must be finite and > 0` has the argument "options" and the field
 * "init_scale".
 *
 * Strings are never NULL and stay valid while the library is loaded. Later versions may fill fields that are empty now.
 */
typedef struct gsc_error {
  uint32_t struct_size;
  /** What the function returned. GSC_OK: no call has failed since the thread began or called gsc_error_clear. */
  gsc_status status;
  /** The function that failed; "" if none has. */
  const char *function;
  /**
   * The parameter, by its name in this header. "" if the failure is not about a parameter, such as running out of
   * memory. If a callback failed: the parameter of the earlier call that set it, "reducer" or "options".
   */
  const char *argument;
  /** The member, if the argument or its entry is a struct: "init_scale", "dtype". Else "". */
  const char *field;
  /** The entry of an array other than tensors: slot of `state`, group of `device_lr`, bin of `histogram`. Else -1. */
  int64_t index;
  /** The tensor in a list or an array of tensors. Else -1. */
  int64_t tensor;
} gsc_error;
/**
 * Copies the most recent failure on the calling thread. Successful calls, this one included, leave it as it is.
 * Errors: INVALID_ARGUMENT if out_error is NULL or its struct_size is unknown; that is then the most recent failure.
 *
 *     gsc_error error; error.struct_size = sizeof error;
 *     if (gsc_error_get_last(&error) == GSC_OK && error.status == GSC_ERROR_INVALID_ARGUMENT) mark(error.argument);
 */
GSC_API gsc_status gsc_error_get_last(gsc_error *out_error);
/** Clears the calling thread's failure: the message is "" and gsc_error.status GSC_OK until the next one. */
GSC_API void gsc_error_clear(void);
/** Short English name of a status, such as "invalid argument"; "unknown status" for others. Static storage. */
GSC_API const char *gsc_status_get_name(gsc_status status);

/* ---------------------------------------------------------------------------------------------------------------
 * 2. The simple loop
 *
 * Create a context, lists of tensors, an optimizer and a scaler; then scale, step and update in every iteration.
 * ------------------------------------------------------------------------------------------------------------ */

typedef struct gsc_context gsc_context;
typedef struct gsc_tensor_list gsc_tensor_list;
typedef struct gsc_scaler gsc_scaler;
typedef struct gsc_optimizer gsc_optimizer;

typedef void *gsc_stream;

/** Device, threads, allocator and log of a context: section 10. */
typedef struct gsc_context_options gsc_context_options;
/**
 * Opens a device. options NULL: the CPU with all its threads. Threads start with the first parallel call.
 * Free *out_context with gsc_context_destroy. Errors: INVALID_ARGUMENT, UNAVAILABLE, OUT_OF_MEMORY.
 * @nullable{options}
 */
GSC_API gsc_status gsc_context_create(const gsc_context_options *options, gsc_context **out_context);
GSC_API void gsc_context_destroy(gsc_context *context);

/**
 * Element types.
 *
 * 0 is invalid on purpose: a zeroed gsc_tensor is refused.
 *
 * @type{DType GSC_}
 */
enum {
  /** IEEE binary16. */
  GSC_FP16 = 1,
  /** bfloat16: the upper half of an IEEE binary32. */
  GSC_BF16 = 2,
  /** IEEE binary32. */
  GSC_FP32 = 3,
  /**
   * IEEE binary64. If a parameter is narrower than its fp64 gradient, the optimizer rounds the gradient to fp32. Checks
   * of that list then count every fp64 gradient beyond fp32's range as an overflow.
   */
  GSC_FP64 = 4,
  /** OCP FP8, 4 bits of exponent and 3 of mantissa. For optimizer state only, as the formats after it. */
  GSC_FP8_E4M3 = 5,
  /** Refused by this version. @reserved */
  GSC_FP8_E5M2 = 6,
  /** 8 bits for squares, in even steps over the octaves of a block: docs/reference/semantics.md. */
  GSC_UINT8_LOG = 7,
  /** Unsigned, 6 bits of exponent and 10 of mantissa, no subnormals. */
  GSC_UFP16_E6M10 = 8,
  /** A remainder of 8 bits: the part of a master that its 16-bit weight leaves out. */
  GSC_INT8 = 9,
  /** A remainder of 16 bits. As the dtype of scales: the range of a block in GSC_UINT8_LOG. */
  GSC_INT16 = 10,
  /** A power of two, 2^(byte - 127). For scales only. */
  GSC_FP8_E8M0 = 11,
  /** FlashOptim's 8 bits for means of gradients. For gsc_ops_convert_state only, as the next. */
  GSC_INT8_SOFTSIGN = 12,
  /** FlashOptim's 8 bits for means of squares. */
  GSC_UINT8_SQRT = 13
};

/**
 * A contiguous buffer in device memory. The library copies this struct. Its size never changes.
 *
 * Set the fields after `dtype` to 0, as GSC_TENSOR_INIT does. Only some dtypes of optimizer state have scales, one
 * for each block of 32 elements: scale_block_rows is 1 and scale_block_columns 32. Their scale_dtype is GSC_FP8_E8M0 for
 * GSC_FP8_E4M3 and GSC_UFP16_E6M10, GSC_INT16 for GSC_UINT8_LOG, GSC_FP16 for FlashOptim's codes. Other values are
 * refused.
 */
typedef struct gsc_tensor {
  /** First element, aligned to its dtype's size. May be NULL if count is 0. */
  void *data;
  /** Number of elements, 0..2^40. A whole list has the same limit. */
  int64_t count;
  /** GSC_FP16, GSC_BF16, GSC_FP32 or GSC_FP64; of optimizer state also the codes after them. */
  int32_t dtype;
  /** Dtype of the scales; 0 if there are none. */
  int32_t scale_dtype;
  /** Scales in device memory, one for each block, aligned to their dtype's size. NULL: none. */
  const void *scale;
  /** Rows and columns of a block. Both 0: one scale for the whole tensor. */
  int32_t scale_block_rows;
  int32_t scale_block_columns;
  /** Columns of a row-major matrix of count elements. 0: one-dimensional. */
  int64_t columns;
  int64_t reserved[2];
} gsc_tensor;

/** A tensor without scales or columns, as an initializer: gsc_tensor t = GSC_TENSOR_INIT(p, n, GSC_FP16). */
#define GSC_TENSOR_INIT(data, count, dtype)           \
  {                                                   \
    (data), (count), (dtype), 0, 0, 0, 0, 0, { 0, 0 } \
  }

/**
 * Makes a list of `count` tensors, 0..2^24: validates them and plans the passes over them. The buffers stay yours; this
 * call does not read or write them. `names` is NULL or has `count` strings, which are copied and appear in messages; an
 * entry may be NULL. Free *out_list with gsc_tensor_list_destroy.
 *
 * Errors: INVALID_ARGUMENT naming tensors[i]: null data, negative count, unknown dtype, data not aligned to the dtype,
 * two tensors or their scales overlap, memory of another device. OUT_OF_MEMORY.
 *
 * @count{tensors count} @count{names count} @nullable{names}
 */
GSC_API gsc_status gsc_tensor_list_create(gsc_context *context, const gsc_tensor *tensors, int64_t count,
                                          const char *const *names, gsc_tensor_list **out_list);
GSC_API void gsc_tensor_list_destroy(gsc_tensor_list *list);
/** Number of tensors in the list. */
GSC_API gsc_status gsc_tensor_list_get_count(const gsc_tensor_list *list, int64_t *out_count);
/** Copy of tensor `index` with its current address. */
GSC_API gsc_status gsc_tensor_list_get_tensor(const gsc_tensor_list *list, int64_t index, gsc_tensor *out_tensor);
/** The name of tensor `index`, "" if it has none. Valid as long as the list. */
GSC_API gsc_status gsc_tensor_list_get_name(const gsc_tensor_list *list, int64_t index, const char **out_name);
/**
 * Points the list at new buffers of the same counts and dtypes. Call it when a framework has reallocated them. `data`
 * holds `count` addresses, one per tensor. Stream-ordered: work enqueued earlier still uses the old ones.
 *
 * Errors: INVALID_ARGUMENT as for create, and if a buffer overlaps another list of an optimizer that uses this one;
 * BAD_STATE if a scaler has used the list since its last update, or while a step uses it.
 *
 * @count{data count}
 */
GSC_API gsc_status gsc_tensor_list_set_pointers(gsc_tensor_list *list, void *const *data, int64_t count,
                                                gsc_stream stream);
/**
 * Multiplies the gradients of the list by a device scalar, besides unscaling: 1 over the number of tokens or micro-batches
 * of an iteration, which only the device may know. A scaler's check, clipping, unscale and step, and steps without a
 * scaler, see gradients times inverse scale times *device_factor, without a pass of their own: the two factors are
 * multiplied first, in fp32. The scalar is read on the stream where a check of the list begins (gsc_scaler_unscale is a
 * new one), or at the step if nothing checks; a captured graph reads it at each launch. It must outlive the list. NULL,
 * the default: no factor.
 *
 * A negative, inf or NaN *device_factor fails that call with INVALID_ARGUMENT on the CPU. On other devices all gradients
 * count as inf or NaN, so that the step is skipped; without a scaler's check it is skipped as for an invalid inverse scale.
 *
 * Errors: BAD_STATE if a scaler has used the list since its last update, or while a step uses it.
 *
 * @device{device_factor} @nullable{device_factor}
 */
GSC_API gsc_status gsc_tensor_list_set_device_factor(gsc_tensor_list *list, const float *device_factor);
/**
 * Keeps the L2 norm of every gradient of the list: each check of a scaler writes `count` numbers to `device_norms`, one
 * per tensor, from the sums that it makes anyway. They are norms of the unscaled gradients before clipping, of this rank:
 * NaN if an element counts as NaN, otherwise inf if one counts as inf; 0 for empty and absent tensors. They are written on
 * the stream of the call that ends the check, also if the step is skipped. A disabled scaler checks only to clip. The
 * memory must outlive the list. NULL, the default: not kept.
 *
 * Errors: INVALID_ARGUMENT if `count` is not that of the list; BAD_STATE if a scaler has used the list since its last
 * update, or while a step uses it.
 *
 * @count{device_norms count} @device{device_norms} @nullable{device_norms}
 */
GSC_API gsc_status gsc_tensor_list_set_device_norms(gsc_tensor_list *list, double *device_norms, int64_t count);
/**
 * Sets which tensors of a list of gradients take part in the iterations from now on: experts without tokens, skipped
 * layers and frozen parts have no gradient. `present` has `count` bytes, one per tensor, 0 for an absent one; NULL: all
 * are present. `data` NULL keeps the addresses. Otherwise it has `count` new ones, as for gsc_tensor_list_set_pointers;
 * that of an absent tensor may be NULL, and then the tensor needs one when it is present again.
 *
 * An absent tensor counts as empty: it is neither read nor written, and its parameter, state and step count stay as they
 * are (gsc_optimizer_get_tensor_steps_sync). An empty tensor is always present. gsc_tensor_list_set_pointers leaves
 * absent tensors absent. Stream-ordered. The first call on a list and the next step of each of its optimizers allocate;
 * capture graphs after them, since a graph captured before counts a step for every tensor.
 *
 * Errors: INVALID_ARGUMENT as for gsc_tensor_list_set_pointers, and for a tensor that is present without an address;
 * BAD_STATE if a scaler has used the list since its last update, while a step uses it, or for a list of parameters,
 * copies or state.
 *
 * @count{present count} @count{data count} @nullable{present data}
 */
GSC_API gsc_status gsc_tensor_list_set_present(gsc_tensor_list *list, const uint8_t *present, void *const *data,
                                               int64_t count, gsc_stream stream);

/**
 * Kinds of optimizer.
 *
 * Each state slot has one tensor per parameter, of the same count, in fp32 (fp64 for fp64 parameters) or in the dtypes
 * of a GSC_STATE_* format: take them from gsc_optimizer_get_state. `average` and NovoGrad's exp_avg_sq have 2 and 1
 * numbers per tensor, in fp64. With an ema_decay the slot `ema` follows, in fp32 or fp64: the first step of a tensor
 * sets it to the new parameters, later ones average them in the same pass.
 *
 * Each kind uses the options that it lists, with these defaults, and besides them ema_decay, param_min, param_max, seed,
 * state_format and master_format. An option that the kind does not use must be 0: it is refused, not ignored.
 * docs/reference/options.md has the table.
 *
 * @type{OptimizerKind GSC_}
 */
enum {
  /**
   * Stochastic gradient descent, as torch.optim.SGD.
   * @name{SGD}
   * @slots{momentum_buffer: moment if momentum}
   * @options{lr 1e-3, momentum 0, dampening 0, weight_decay 0, nesterov}
   */
  GSC_SGD = 0,
  /**
   * Adam, as torch.optim.Adam: weight decay is added to the gradient.
   * @name{Adam}
   * @slots{exp_avg: moment; exp_avg_sq: second_moment; max_exp_avg_sq: second_moment if amsgrad}
   * @options{lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 0, amsgrad, cautious}
   */
  GSC_ADAM = 1,
  /**
   * Adam with decoupled weight decay (Loshchilov and Hutter 2019), as torch.optim.AdamW.
   * @name{AdamW}
   * @slots{exp_avg: moment; exp_avg_sq: second_moment; max_exp_avg_sq: second_moment if amsgrad}
   * @options{lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 1e-2, amsgrad, cautious, cautious_decay}
   */
  GSC_ADAMW = 2,
  /**
   * Adagrad, as torch.optim.Adagrad. `sum` starts at initial_accumulator_value.
   * @name{Adagrad}
   * @slots{sum: second_moment}
   * @options{lr 1e-2, lr_decay 0, weight_decay 0, initial_accumulator_value 0, eps 1e-10}
   */
  GSC_ADAGRAD = 3,
  /**
   * Lion (Chen et al. 2023, arXiv:2302.06675).
   * @name{Lion}
   * @slots{exp_avg: moment}
   * @options{lr 1e-4, beta1 0.9, beta2 0.99, weight_decay 0, cautious, cautious_decay}
   */
  GSC_LION = 4,
  /**
   * LAMB (You et al. 2020, arXiv:1904.00962).
   * @name{LAMB} @norms
   * @slots{exp_avg: moment; exp_avg_sq: second_moment}
   * @options{lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-6, weight_decay 1e-2}
   */
  GSC_LAMB = 5,
  /**
   * RMSprop, as torch.optim.RMSprop; with eps_root in place of eps as TensorFlow's and Keras's.
   * @name{RMSprop}
   * @slots{square_avg: second_moment, full if centered; momentum_buffer: moment if momentum; grad_avg: full if centered}
   * @options{lr 1e-2, alpha 0.99 in [0, 1), eps 1e-8, weight_decay 0, momentum 0, centered, eps_root 0}
   */
  GSC_RMSPROP = 6,
  /**
   * Adadelta (Zeiler 2012, arXiv:1212.5701), as torch.optim.Adadelta.
   * @name{Adadelta}
   * @slots{square_avg: second_moment; acc_delta: second_moment}
   * @options{lr 1.0, rho 0.9, eps 1e-6, weight_decay 0}
   */
  GSC_ADADELTA = 7,
  /**
   * Adamax (Kingma and Ba 2015), as torch.optim.Adamax.
   * @name{Adamax}
   * @slots{exp_avg: moment; exp_inf: second_moment}
   * @options{lr 2e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 0}
   */
  GSC_ADAMAX = 8,
  /**
   * NAdam (Dozat 2016), as torch.optim.NAdam.
   * @name{NAdam}
   * @slots{exp_avg: moment; exp_avg_sq: second_moment}
   * @options{lr 2e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 0, momentum_decay 4e-3, decoupled_weight_decay}
   */
  GSC_NADAM = 9,
  /**
   * RAdam (Liu et al. 2020, arXiv:1908.03265), as torch.optim.RAdam.
   * @name{RAdam}
   * @slots{exp_avg: moment; exp_avg_sq: second_moment}
   * @options{lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 0, decoupled_weight_decay}
   */
  GSC_RADAM = 10,
  /**
   * AdaBelief (Zhuang et al. 2020, arXiv:2010.07468), as optax.adabelief.
   * @name{AdaBelief}
   * @slots{exp_avg: moment; exp_avg_var: second_moment}
   * @options{lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-16, weight_decay 0, eps_root 1e-16, decoupled_weight_decay}
   */
  GSC_ADABELIEF = 11,
  /**
   * AdEMAMix (Pagliardini et al. 2024, arXiv:2409.03137).
   * @name{AdEMAMix}
   * @slots{exp_avg: moment; exp_avg_sq: second_moment; exp_avg_slow: moment}
   * @options{lr 1e-3, beta1 0.9, beta2 0.999, eps 1e-8, weight_decay 1e-2, beta3 0.9999, alpha 5.0, warmup_steps 0,
   * beta3_warmup 0}
   */
  GSC_ADEMAMIX = 12,
  /**
   * Schedule-Free AdamW (Defazio et al. 2024, arXiv:2405.15682), as in the package schedulefree.
   * @name{AdamWScheduleFree}
   * @slots{z: full; exp_avg_sq: second_moment; average: average}
   * @options{lr 2.5e-3, beta1 0.9 in (0, 1), beta2 0.999, eps 1e-8, weight_decay 0, warmup_steps 0, weight_step_power 0,
   * weight_lr_power 2.0}
   */
  GSC_ADAMW_SCHEDULE_FREE = 13,
  /**
   * Schedule-Free SGD (Defazio et al. 2024), as in the package schedulefree.
   * @name{SGDScheduleFree}
   * @slots{z: full; average: average}
   * @options{lr 1.0, momentum 0.9 in (0, 1), weight_decay 0, warmup_steps 0, weight_step_power 0, weight_lr_power 2.0}
   */
  GSC_SGD_SCHEDULE_FREE = 14,
  /**
   * LARS (You et al. 2017, arXiv:1708.03888), as optax.lars.
   * @name{LARS} @norms
   * @slots{momentum_buffer: moment if momentum}
   * @options{lr 1.0, momentum 0.9, weight_decay 0, trust_coefficient 1e-3, eps 0, nesterov}
   */
  GSC_LARS = 15,
  /**
   * NovoGrad (Ginsburg et al. 2019, arXiv:1905.11286), as optax.novograd.
   * @name{NovoGrad} @norms
   * @slots{exp_avg: moment; exp_avg_sq: number}
   * @options{lr 1e-2, beta1 0.95, beta2 0.98, eps 1e-8, weight_decay 0, dampening 0, decoupled_weight_decay,
   * bias_correction}
   */
  GSC_NOVOGRAD = 16
};

/** Bits of gsc_optimizer_options.flags. @flags_of{gsc_optimizer_options GSC_OPTIMIZER_} */
enum {
  /** Nesterov momentum; needs momentum > 0 and dampening 0. */
  GSC_OPTIMIZER_NESTEROV = 1,
  /** The step is normalized by the largest exp_avg_sq so far. */
  GSC_OPTIMIZER_AMSGRAD = 2,
  /** Ascend instead of descend. */
  GSC_OPTIMIZER_MAXIMIZE = 4,
  /** Set the gradients to zero in the same pass, also when the step is skipped. Refused with WRITE_GRADS. */
  GSC_OPTIMIZER_ZERO_GRADS = 8,
  /**
   * Write the unscaled and clipped gradients back in the same pass, unless the step is skipped. Refused with
   * ZERO_GRADS.
   */
  GSC_OPTIMIZER_WRITE_GRADS = 16,
  /** The root is of the estimated variance. Its two means are fp32 in every format of state. */
  GSC_OPTIMIZER_CENTERED = 32,
  /**
   * Weight decay shrinks the parameter, instead of being added to the gradient. NovoGrad: also, exp_avg is the mean of
   * gradients, and divided after that.
   */
  GSC_OPTIMIZER_DECOUPLED_WEIGHT_DECAY = 64,
  /** Both moments are divided by 1 - beta^t. */
  GSC_OPTIMIZER_BIAS_CORRECTION = 128,
  /** Count the elements that a step leaves as they were: see gsc_optimizer_get_unchanged_sync. Steps take longer. */
  GSC_OPTIMIZER_COUNT_UNCHANGED = 256,
  /**
   * The decay of `ema` is at most (1 + n) / (10 + n) when a tensor has taken n steps before, as TensorFlow's
   * ExponentialMovingAverage with num_updates.
   */
  GSC_OPTIMIZER_EMA_WARMUP = 512,
  /**
   * Leaves out the update of an element whose gradient has the opposite sign or is 0 (Liang et al. 2024,
   * arXiv:2411.16085). Decoupled weight decay, the state and NaN are as without the flag. With Adam the gradient has the
   * weight decay in it. The paper and timm then divide the updates of a tensor by the share that is not left out, which
   * takes a second pass. This library does not: a larger lr makes up for it.
   */
  GSC_OPTIMIZER_CAUTIOUS = 1024,
  /**
   * Leaves out the weight decay of an element that the update moves away from 0, whose parameter and update have opposite
   * signs (Chen et al. 2025, arXiv:2510.12402, algorithm 1). With CAUTIOUS too, the update is that before it is left out.
   */
  GSC_OPTIMIZER_CAUTIOUS_DECAY = 2048
};

/**
 * Formats of the state that the library allocates.
 *
 * Smaller state is read and written faster and takes less memory. A step computes the update in fp32 from the new
 * moments before it rounds them. docs/state.md compares the formats.
 *
 * @type{StateFormat GSC_STATE_}
 */
enum {
  /** fp32; fp64 for fp64 parameters. */
  GSC_STATE_FULL = 0,
  /** Means of gradients in GSC_BF16; means and sums of squares in GSC_UFP16_E6M10. Not for fp64 parameters. */
  GSC_STATE_BITS16 = 1,
  /**
   * Means of gradients in GSC_FP8_E4M3, those that keep more than 0.99 of their value in a step in GSC_BF16; means and
   * sums of squares in GSC_UINT8_LOG, with a maximum of them (AMSGrad) in GSC_UFP16_E6M10. Not for fp64 parameters.
   */
  GSC_STATE_BITS8 = 2
};

/** Where the precision of fp16 and bf16 parameters beyond 16 bits is kept. @type{MasterFormat GSC_MASTER_} */
enum {
  /** Nowhere: parameters are rounded to nearest. For fp32 master weights with a model_copy, and without masters. */
  GSC_MASTER_NONE = 0,
  /**
   * The parameters are the upper part of fp32 masters; the last state slot, `remainder`, is GSC_INT16 and holds the
   * rest. Exact for bf16, and for fp16 from 2^-17 to 65504, where masters end.
   */
  GSC_MASTER_SPLIT16 = 1,
  /** The same with a remainder in GSC_INT8: masters have 8 bits more than the parameters. */
  GSC_MASTER_SPLIT8 = 2,
  /** No master: parameters are rounded stochastically. */
  GSC_MASTER_STOCHASTIC = 3
};

/** Hyper-parameters of an optimizer. Start from gsc_optimizer_options_init, which writes the defaults of a kind. */
typedef struct gsc_optimizer_options {
  uint32_t struct_size;
  /** GSC_OPTIMIZER_* bits. @default{0} */
  uint32_t flags;
  /** GSC_SGD or another kind. @enum{OptimizerKind} */
  int32_t kind;
  /**
   * The format of state that the library allocates. State lists of the caller have their own dtypes.
   * @enum{StateFormat} @default{GSC_STATE_FULL}
   */
  int32_t state_format;
  /**
   * Learning rate. All numbers here must be finite when converted to float. fp64 parameters use the doubles.
   * @range{>= 0}
   */
  double lr;
  /** Decay of the first moment. @range{[0, 1)} */
  double beta1;
  /** Decay of the second moment. Lion: of its state. @range{[0, 1)} */
  double beta2;
  /** Added to the denominator. @range{>= 0} */
  double eps;
  /** Weight decay; decoupled or added to the gradient, depending on the kind. @range{>= 0} */
  double weight_decay;
  /**
   * Momentum. There is a momentum buffer if group 0 has momentum. Schedule-Free SGD: the weight of the average at which
   * gradients are taken.
   * @range{>= 0}
   */
  double momentum;
  /** Dampening of the momentum. NovoGrad: exp_avg gets 1 - dampening of a gradient. @range{finite} */
  double dampening;
  /** Decay of the learning rate. @range{>= 0} */
  double lr_decay;
  /** Initial value of a group's `sum` in state that the library allocates. @range{>= 0} */
  double initial_accumulator_value;
  /** Seed of stochastic rounding. @default{0} */
  int64_t seed;
  /**
   * Other values than GSC_MASTER_NONE need fp16 or bf16 parameters.
   * @enum{MasterFormat} @default{GSC_MASTER_NONE}
   */
  int32_t master_format;
  int32_t reserved;
  /** RMSprop: decay of the means. AdEMAMix: weight of the slow mean. @range{>= 0} */
  double alpha;
  /** Decay of the means. @range{[0, 1)} */
  double rho;
  /** How fast the momentum grows. @range{>= 0} */
  double momentum_decay;
  /** RMSprop: added inside the root. AdaBelief: added to the second moment at each step. @range{>= 0} */
  double eps_root;
  /** Decay of the slow mean of gradients. @range{[0, 1)} */
  double beta3;
  /** AdEMAMix: steps over which alpha grows from 0. Schedule-Free: those over which lr does. @range{0..2^53} */
  int64_t warmup_steps;
  /** Steps over which the half-life of the slow mean grows from that of beta1. @range{0..2^53} */
  int64_t beta3_warmup;
  /** Step t counts as t to this power in the average. The package schedulefree calls it r. @range{>= 0} */
  double weight_step_power;
  /** A step also counts as the largest learning rate so far to this power. @range{>= 0} */
  double weight_lr_power;
  /** Factor of the ratio of norms. @range{>= 0} */
  double trust_coefficient;
  /**
   * Decay of an exponential moving average of the parameters. The average is the state slot `ema` if group 0 has a decay
   * above 0, and a copy of the parameters in a group where it is 0.
   * @range{[0, 1)} @default{0}
   */
  double ema_decay;
  /**
   * The least value of a group's parameters: a step sets those below it to it, before it rounds, copies or averages them.
   * NaN stays. No range if this and param_max are 0. A dtype that does not have the bound rounds it. A Schedule-Free kind
   * takes no range: the average of its iterates would leave it.
   * @range{finite} @default{0}
   */
  double param_min;
  /** The largest value of a group's parameters, not below param_min. @range{finite} @default{0} */
  double param_max;
} gsc_optimizer_options;

/**
 * Writes the defaults of `kind`. Pass sizeof(gsc_optimizer_options) as `struct_size`; exactly that many bytes are written,
 * 0 in fields that the library does not know. Errors: INVALID_ARGUMENT if options is NULL, kind is unknown, or
 * struct_size cannot be that of any version.
 * @enum{kind OptimizerKind}
 */
GSC_API gsc_status gsc_optimizer_options_init(gsc_optimizer_options *options, uint32_t struct_size, int32_t kind);

/**
 * Makes an optimizer that updates params[i] with grads[i]. options NULL: AdamW with its defaults.
 *
 *   params      fp32 (or fp64) master weights, or fp16/bf16 weights directly. Arithmetic is in fp32; in fp64 for fp64
 *               parameters.
 *   grads       any dtype, also mixed within the list.
 *   model_copy  NULL, or the 16-bit weights of the next forward pass: the step writes every updated parameter here,
 *               rounded to this list's dtype, in the same pass.
 *   state       NULL with state_count 0: the library allocates the state, zeroed (Adagrad's `sum` at its initial
 *               value). Otherwise `state_count` lists, one per slot of the kind, which you own and have initialized;
 *               their dtypes may differ from tensor to tensor, such as fp32 for embeddings and 8 bits for matrices.
 *
 * The optimizer keeps the lists alive, not their buffers. Free *out_optimizer with gsc_optimizer_destroy.
 * Errors: INVALID_ARGUMENT naming list and index: different lengths, counts or contexts, state of a wrong dtype,
 * overlap between any two buffers, an absent tensor, option out of range. OUT_OF_MEMORY.
 *
 * @count{state state_count} @nullable{options model_copy state}
 */
GSC_API gsc_status gsc_optimizer_create(gsc_context *context, const gsc_optimizer_options *options,
                                        gsc_tensor_list *params, gsc_tensor_list *grads, gsc_tensor_list *model_copy,
                                        gsc_tensor_list *const *state, int32_t state_count,
                                        gsc_optimizer **out_optimizer);
GSC_API void gsc_optimizer_destroy(gsc_optimizer *optimizer);

/** The policy of a scaler: section 8. */
typedef struct gsc_scaler_options gsc_scaler_options;
/**
 * Creates a scaler whose state lives in memory of the context's device. options NULL: PyTorch's policy.
 * Free *out_scaler with gsc_scaler_destroy. Errors: INVALID_ARGUMENT naming the option; OUT_OF_MEMORY.
 * @nullable{options}
 */
GSC_API gsc_status gsc_scaler_create(gsc_context *context, const gsc_scaler_options *options, gsc_scaler **out_scaler);
GSC_API void gsc_scaler_destroy(gsc_scaler *scaler);

/**
 * Waits for the work enqueued on `stream` and returns the scale, by which you multiply the loss; 1 if the scaler is
 * disabled. On a GPU, gsc_scaler_scale multiplies without waiting.
 */
GSC_API gsc_status gsc_scaler_get_scale_sync(const gsc_scaler *scaler, float *out_scale, gsc_stream stream);
/**
 * Multiplies by the scale on the device: dst[i] = src[i] * scale for each pair of tensors, such as the loss or the
 * first gradient of the backward pass. src[i] and dst[i] have the same number of elements; their dtypes may differ, and
 * they may be the same buffer. Computed in fp32 (fp64 if either is fp64) and rounded to nearest even. Overflow is not
 * checked here. Disabled scaler: a copy.
 * @count{src count} @count{dst count}
 */
GSC_API gsc_status gsc_scaler_scale(gsc_scaler *scaler, const gsc_tensor *src, const gsc_tensor *dst, int64_t count,
                                    gsc_stream stream);
/**
 * The fused step. Checks the optimizer's gradients unless they have been checked. If all are finite, unscales, clips
 * and applies them in one pass. Otherwise, or if their norm is a spike by skip_norm or spike_factor, parameters and
 * state keep their bits, and the step counts as skipped.
 * Any stage -> STEPPED.
 *
 * Errors: BAD_STATE if stepped since the last update; BAD_STATE if the optimizer converts fp64 gradients to fp32 and
 * was created after their check; INVALID_ARGUMENT if one object is on the CPU and the other on a CUDA device.
 */
GSC_API gsc_status gsc_scaler_step(gsc_scaler *scaler, gsc_optimizer *optimizer, gsc_stream stream);
/**
 * Ends the iteration. Backs the scale off if a list checked since the last update had an inf or NaN. If none had, but
 * the norm of one was a spike, the scale and its trackers stay. Otherwise counts a clean step and, after growth_interval
 * of them, grows the scale. Adds an entry to the history. All lists -> READY.
 * Disabled scaler: returns all lists to READY and does nothing else.
 *
 * Errors: BAD_STATE if no list was checked, unscaled or stepped since the last update, or if check_range has checked
 * only part of one.
 */
GSC_API gsc_status gsc_scaler_update(gsc_scaler *scaler, gsc_stream stream);
/**
 * gsc_scaler_step and gsc_scaler_update in one call, for loops with a single optimizer. Saves a kernel launch.
 * Errors: those of both; INVALID_ARGUMENT if the optimizer and the scaler are of different contexts.
 */
GSC_API gsc_status gsc_scaler_step_and_update(gsc_scaler *scaler, gsc_optimizer *optimizer, gsc_stream stream);
/** Sets the gradients to zero. With GSC_OPTIMIZER_ZERO_GRADS the step does it in its own pass. */
GSC_API gsc_status gsc_optimizer_zero_grads(gsc_optimizer *optimizer, gsc_stream stream);

/* ---------------------------------------------------------------------------------------------------------------
 * 3. Reports and history
 * ------------------------------------------------------------------------------------------------------------ */

/** Bits of gsc_report.flags. @flags_of{gsc_report GSC_REPORT_} */
enum {
  /** An inf or NaN was found: the step was, or will be, skipped. */
  GSC_REPORT_OVERFLOW = 1,
  /** The scale cannot be lowered further and floor_patience has run out (needs GSC_FLOOR_REPORT or
   *  GSC_FLOOR_ERROR). */
  GSC_REPORT_AT_FLOOR = 2,
  /**
   * The scale is 0, or so small that 1 / scale is inf in fp32. Every gradient then counts as inf or NaN and every step is
   * skipped, until gsc_scaler_set_scale. A warning is logged once: at the update on the CPU, by the next call that reads
   * the scale, a report, the history or the state on a GPU. A min_scale prevents it.
   */
  GSC_REPORT_SCALE_UNDERFLOW = 4,
  /** All gradients are finite and the norm is above norm_limit: the step was, or will be, skipped. */
  GSC_REPORT_SPIKE = 8,
  /** As many steps in a row as spike_patience were skipped for their norm (needs GSC_SPIKE_ERROR). */
  GSC_REPORT_SPIKES_PERSIST = 16
};

/** The state of a scaler, and the result of the last check of its gradients. */
typedef struct gsc_report {
  uint32_t struct_size;
  /** GSC_REPORT_* bits. */
  uint32_t flags;
  /** The scale now. */
  float scale;
  /** Clean steps since the scale last changed. */
  int32_t growth_tracker;
  /** Overflows left before the scale backs off. */
  int32_t hysteresis_tracker;
  /** Skipped updates in a row, the last one included; 0 if it was clean. */
  int32_t consecutive_skips;
  /** Updates so far, including those of a restored state. */
  int64_t updates;
  /** How many of these found an overflow or a spike. */
  int64_t skipped;
  /**
   * L2 norm of the unscaled gradients before clipping; inf or NaN if they overflowed. With a reducer, over all ranks.
   */
  double grad_norm;
  /** Largest magnitude of this rank's unscaled gradients. Gradients stored as inf or NaN do not count. */
  double grad_amax;
  /** Number of non-finite gradients; with a reducer, over all ranks. */
  int64_t nonfinite_count;
  /** Of these, on this rank: +inf, -inf, and values that become inf when unscaled. */
  int64_t inf_count;
  /** Of these, on this rank: NaN. */
  int64_t nan_count;
  /** Index in its list of the first tensor with a non-finite gradient on this rank; -1 if none. */
  int64_t first_tensor;
  /** Index in that tensor of its first non-finite gradient; -1 if none. */
  int64_t first_element;
  /** How many of the skipped updates found a spike and no overflow. */
  int64_t spikes;
  /**
   * The norm above which the step is skipped; inf if there is no limit, or none yet. Of an update: the lowest of
   * its lists with a spike, or of all if there is none.
   */
  double norm_limit;
  /** Geometric mean of the norms of the same list, as spike_factor has it; 0 if there are none. */
  double norm_average;
} gsc_report;

/**
 * Waits for the stream and copies a report to host memory. The fields before grad_norm are the scaler's state now. The
 * others describe the last check of `grads`, until its next check. With grads NULL they describe all lists of the last
 * update together; first_tensor and first_element are then those of the first list that overflowed.
 * Errors: SCALE_FLOOR under GSC_FLOOR_ERROR and SPIKES under GSC_SPIKE_ERROR, both with the report filled in; BAD_STATE
 * if this scaler never checked grads.
 * @nullable{grads}
 */
GSC_API gsc_status gsc_scaler_get_report_sync(gsc_scaler *scaler, const gsc_tensor_list *grads, gsc_report *out_report,
                                              gsc_stream stream);
/**
 * The same without waiting: enqueues a copy into `out_report`, which is valid once the stream has passed this point.
 * `out_report` is pinned host memory; on the CPU, any memory.
 * Never returns SCALE_FLOOR or SPIKES.
 * @nullable{grads} @device{out_report}
 */
GSC_API gsc_status gsc_scaler_read_report_async(gsc_scaler *scaler, const gsc_tensor_list *grads,
                                                gsc_report *out_report, gsc_stream stream);

/** One update in the history. */
typedef struct gsc_history_entry {
  /** Number of the update, counted from 0, including those of a restored state. */
  int64_t update;
  /** L2 norm of the unscaled gradients of all its lists. */
  double grad_norm;
  /** Number of non-finite gradients in all its lists. */
  int64_t nonfinite_count;
  /** The scale after that update. */
  float scale;
  /** Whether that update found an overflow. @bool */
  int32_t overflow;
  /** The norm above which a step was skipped; inf without a limit. Of the first list with a spike, else the lowest. */
  double norm_limit;
  /** Whether that update found no overflow, but a norm above its limit. @bool */
  int32_t spike;
  int32_t reserved;
} gsc_history_entry;

/**
 * Waits for the stream and copies the newest entries, at most `capacity`, oldest first. Writes their number to
 * *out_count. With capacity 0, out_entries may be NULL and *out_count is the number available. The scaler keeps
 * gsc_scaler_options.history_capacity entries, 16 by default.
 * @count{out_entries capacity} @nullable{out_entries}
 */
GSC_API gsc_status gsc_scaler_get_history_sync(gsc_scaler *scaler, gsc_history_entry *out_entries, int64_t capacity,
                                               int64_t *out_count, gsc_stream stream);

/**
 * Addresses of the scaler's device scalars, for your own kernels to read. They are valid as long as the scaler. A list
 * on another device has copies there, which hold the values of the list's iteration. The copies are valid until the
 * list is destroyed or a scaler of a third device uses it.
 */
typedef struct gsc_device_state {
  uint32_t struct_size;
  uint32_t reserved;
  /** The scale. */
  const float *scale;
  /** 1 / scale, computed in fp64 and rounded. */
  const float *inv_scale;
  /** Clean steps since the scale last changed. */
  const int32_t *growth_tracker;
  /** Overflows left before the scale backs off. */
  const int32_t *hysteresis_tracker;
  /**
   * Not 0 if the step is skipped: the number of non-finite gradients of the given list as a float, or 1 for a spike. NULL
   * if no list was given.
   */
  const float *found_inf;
  /** L2 norm of the unscaled gradients of the given list. NULL if no list was given. */
  const double *grad_norm;
  /** The norm above which the step is skipped; inf if there is no limit. NULL if no list was given. */
  const double *norm_limit;
  /**
   * If the step is skipped for its norm: how many have been in a row, this one included. Else 0. NULL if no list was
   * given.
   */
  const int32_t *spike;
} gsc_device_state;

/**
 * Fills in the addresses; `grads` may be NULL. Errors: INVALID_ARGUMENT; BAD_STATE if grads is of another context and
 * this scaler was not the last to use it.
 * @nullable{grads}
 */
GSC_API gsc_status gsc_scaler_get_device_state(gsc_scaler *scaler, const gsc_tensor_list *grads,
                                               gsc_device_state *out_state);

/** Number of steps applied and skipped so far. Either output may be NULL. @nullable{out_applied out_skipped} */
GSC_API gsc_status gsc_optimizer_get_steps_sync(const gsc_optimizer *optimizer, int64_t *out_applied,
                                                int64_t *out_skipped, gsc_stream stream);
/**
 * Applied steps of each of the optimizer's `count` tensors, in host memory: those in which its gradient was present.
 * Bias corrections use these counts, as in PyTorch.
 * @count{out_steps count}
 */
GSC_API gsc_status gsc_optimizer_get_tensor_steps_sync(const gsc_optimizer *optimizer, int64_t *out_steps,
                                                       int64_t count, gsc_stream stream);
/**
 * Elements whose parameter an applied step left as it was, summed over the steps. A parameter is the same if all its bits
 * are, with its remainder if masters are split. Use it to see when learning stops: if nearly all elements of each step
 * are unchanged, updates have become too small for the parameters' format. Elements that had no gradient so far count
 * too. gsc_optimizer_set_steps and gsc_optimizer_load_sync set it to 0. It is 0 without GSC_OPTIMIZER_COUNT_UNCHANGED.
 */
GSC_API gsc_status gsc_optimizer_get_unchanged_sync(const gsc_optimizer *optimizer, int64_t *out_unchanged,
                                                    gsc_stream stream);

/* ---------------------------------------------------------------------------------------------------------------
 * 4. Clipping, and your own optimizer
 *
 * Between two updates every list of gradients goes through
 *     READY -> (CHECKED or UNSCALED) -> STEPPED        and update returns it to READY.
 * CHECKED gradients are still multiplied by the scale; UNSCALED ones are not.
 * A list is in one scaler's iteration at a time. Until that scaler's update, calls with another fail with BAD_STATE.
 * Step all optimizers of a backward pass before update, which may change the scale. If gsc_scaler_scale was called in the
 * iteration before, and since the update neither it nor gsc_scaler_get_scale_sync, the gradients are of the old scale:
 * calls with a list then fail with BAD_STATE. It cannot be known of a scale that was read on the device or in a graph.
 *
 * To clip, call clip_grad_norm and then step, which checks, unscales and clips in its own passes. To read the unscaled
 * gradients, call unscale, run your code, then call step. With your own optimizer call should_step instead of step.
 * ------------------------------------------------------------------------------------------------------------ */

/**
 * Unscales the gradients in place, in one pass. Records their norms, and whether any is inf or NaN before or after
 * unscaling. The norms are those of the exact products, before they are rounded to the gradients' dtype.
 *
 * Call this if your code reads the gradients; otherwise gsc_scaler_step unscales.
 * READY or CHECKED -> UNSCALED. Disabled scaler: leaves the gradients as they are.
 *
 * Errors: BAD_STATE if already unscaled or stepped since the last update. If the message ends with "discard it", the
 * device failed after it had written gradients: the list then accepts only gsc_scaler_discard.
 */
GSC_API gsc_status gsc_scaler_unscale(gsc_scaler *scaler, gsc_tensor_list *grads, gsc_stream stream);
/**
 * Records what gsc_scaler_unscale records and only reads the gradients; gsc_scaler_step then unscales in its own pass.
 * Call it to overlap the check with other work. READY -> CHECKED. Disabled scaler: does nothing.
 * Errors: BAD_STATE unless READY.
 */
GSC_API gsc_status gsc_scaler_check(gsc_scaler *scaler, gsc_tensor_list *grads, gsc_stream stream);

/** Norms over all elements of all tensors of a list. @type{Norm GSC_NORM_} */
enum {
  /** Square root of the sum of squares. */
  GSC_NORM_L2 = 2,
  /** Largest magnitude. */
  GSC_NORM_INF = 3
};

/**
 * Limits the norm of the unscaled gradients to max_norm: g *= min(1, max_norm / (norm + 1e-6)), PyTorch's rule. The
 * report of the list has the norm. norm_type is GSC_NORM_L2 or GSC_NORM_INF.
 *
 * Call it before gsc_scaler_step, which clips in its own pass: nothing runs now. On an UNSCALED list the gradients are
 * rewritten now, with the norm that unscale recorded. Gradients of a list with an inf or NaN stay as they are.
 * Disabled scaler: clips with scale 1.
 *
 * Errors: INVALID_ARGUMENT if max_norm is negative or not finite; BAD_STATE after step, or after another
 * clip_grad_norm or clip_grad_value in this iteration; UNSUPPORTED for GSC_NORM_INF with a reducer.
 *
 * @enum{norm_type Norm}
 */
GSC_API gsc_status gsc_scaler_clip_grad_norm(gsc_scaler *scaler, gsc_tensor_list *grads, double max_norm,
                                             int32_t norm_type, gsc_stream stream);
/**
 * Clamps every unscaled gradient to [-clip_value, clip_value], after clip_grad_norm if both are used. NaN stays NaN.
 * gsc_scaler_step clamps in its own pass; on an UNSCALED list the gradients are rewritten now.
 * Errors: INVALID_ARGUMENT if clip_value is negative or NaN; BAD_STATE after step.
 */
GSC_API gsc_status gsc_scaler_clip_grad_value(gsc_scaler *scaler, gsc_tensor_list *grads, double clip_value,
                                              gsc_stream stream);

/**
 * Replaces gsc_scaler_step for your own optimizer. Checks the list unless it has been checked, and writes 1 to
 * *out_apply if you should apply the step, 0 if you must skip it. Applies a pending clip_grad_norm to the gradients. If
 * you have not called gsc_scaler_unscale, your optimizer divides by the scale, and multiplies by a device factor of the
 * list. Any stage -> STEPPED.
 * Disabled scaler: always 1.
 *
 * Errors: as gsc_scaler_step; BAD_STATE if a clip_grad_value is pending: unscale before you call that, also with a
 * disabled scaler if the list has a device factor.
 *
 * @bool{out_apply}
 */
GSC_API gsc_status gsc_scaler_should_step_sync(gsc_scaler *scaler, gsc_tensor_list *grads, int32_t *out_apply,
                                               gsc_stream stream);

/**
 * Steps without a scaler: no check, no unscaling.
 * Errors: BAD_STATE if a scaler has checked or stepped on the gradients and not unscaled them, or if a clip is pending.
 * After gsc_scaler_should_step_sync the call is allowed: then you unscale the gradients.
 */
GSC_API gsc_status gsc_optimizer_step(gsc_optimizer *optimizer, gsc_stream stream);
/**
 * Steps with your own device scalars, for frameworks that keep the scaler's state themselves. Gradients are multiplied
 * by *inv_scale (NULL: 1). The step is skipped if *found_inf is not 0 (NULL: 0).
 *
 * Errors: as gsc_optimizer_step, but with inv_scale the gradients may have been checked. Unless *found_inf skips the
 * step, a negative, inf or NaN *inv_scale is INVALID_ARGUMENT on the CPU; on a CUDA device the step is skipped.
 *
 * @device{inv_scale found_inf} @nullable{inv_scale found_inf}
 */
GSC_API gsc_status gsc_optimizer_step_scaled(gsc_optimizer *optimizer, const float *inv_scale, const float *found_inf,
                                             gsc_stream stream);

/* ---------------------------------------------------------------------------------------------------------------
 * 5. Parameter groups and learning rates
 * ------------------------------------------------------------------------------------------------------------ */

/**
 * Makes a group of tensors [first, first + count) with separate hyper-parameters. Kind and flags must be the
 * optimizer's. All other tensors form group 0, which has the options given at creation. *out_group (may be NULL)
 * receives the group's number: 1, 2, ... All groups run in the same pass. A graph captured before keeps the groups that
 * it was captured with.
 *
 * Errors: INVALID_ARGUMENT: range outside the list; a tensor that is already in such a group; an option out of range;
 * after the first step, set_steps or load, an initial_accumulator_value other than group 0's.
 *
 * @nullable{out_group}
 */
GSC_API gsc_status gsc_optimizer_add_group(gsc_optimizer *optimizer, int64_t first, int64_t count,
                                           const gsc_optimizer_options *options, int32_t *out_group);
/** Number of groups, >= 1. */
GSC_API gsc_status gsc_optimizer_get_group_count(const gsc_optimizer *optimizer, int32_t *out_count);
/** Copies the hyper-parameters of a group. */
GSC_API gsc_status gsc_optimizer_get_options(const gsc_optimizer *optimizer, int32_t group,
                                             gsc_optimizer_options *out_options);
/**
 * Replaces the hyper-parameters of a group from the next step on, stream-ordered. Kind and flags must stay the same. A
 * momentum of 0 must stay 0, and one above 0 must stay above 0. initial_accumulator_value is ignored.
 */
GSC_API gsc_status gsc_optimizer_set_options(gsc_optimizer *optimizer, int32_t group,
                                             const gsc_optimizer_options *options, gsc_stream stream);
/** Sets a group's learning rate from the next step on, stream-ordered. Ends gsc_optimizer_set_device_lr. */
GSC_API gsc_status gsc_optimizer_set_lr(gsc_optimizer *optimizer, int32_t group, double lr, gsc_stream stream);
/**
 * Makes every step read a group's learning rate from a device scalar, so that a captured graph can follow a schedule.
 * The scalar must outlive the optimizer. NULL returns to the host value. A step that reads a negative, inf or NaN rate
 * fails with INVALID_ARGUMENT on the CPU; on a CUDA device it is skipped and counted as skipped.
 * @device{device_lr} @nullable{device_lr}
 */
GSC_API gsc_status gsc_optimizer_set_device_lr(gsc_optimizer *optimizer, int32_t group, const float *device_lr,
                                               gsc_stream stream);
/**
 * Takes the parameters of a Schedule-Free optimizer, and model copies, to the averaged weights (1), or back to those at
 * which gradients are taken (0), stream-ordered. Evaluate and save models in between. Does nothing if they are there.
 * Writes parameters, their remainders and model copies alone, and rounds to nearest. Tensors that have not taken a step
 * stay as they are, and so do parameters that are inf or NaN. While evaluating, steps fail with BAD_STATE.
 * Errors: INVALID_ARGUMENT for another kind of optimizer, or a value other than 0 and 1.
 *
 * @bool{evaluating}
 */
GSC_API gsc_status gsc_optimizer_set_evaluating(gsc_optimizer *optimizer, int32_t evaluating, gsc_stream stream);
/** 1 while the parameters are the averaged weights, else 0. @bool{out_evaluating} */
GSC_API gsc_status gsc_optimizer_get_evaluating(const gsc_optimizer *optimizer, int32_t *out_evaluating);
/** The optimizer's list of gradients, borrowed: valid as long as the optimizer. */
GSC_API gsc_status gsc_optimizer_get_grads(const gsc_optimizer *optimizer, gsc_tensor_list **out_grads);

/* ---------------------------------------------------------------------------------------------------------------
 * 6. Gradient accumulation and overlap
 *
 * Accumulate scaled gradients over micro-batches at one scale, in fp32 or with gsc_ops_axpby, and call step and update
 * once, after the last.
 * ------------------------------------------------------------------------------------------------------------ */

/**
 * Checks only tensors [first, first + count), while the backward pass still computes the others. The list becomes
 * CHECKED when all tensors are; gsc_scaler_step and gsc_scaler_check check the remaining ones.
 * Errors: as gsc_scaler_check; INVALID_ARGUMENT for a range outside the list; BAD_STATE if a tensor is already checked.
 */
GSC_API gsc_status gsc_scaler_check_range(gsc_scaler *scaler, gsc_tensor_list *grads, int64_t first, int64_t count,
                                          gsc_stream stream);
/**
 * Returns a list to READY as if it had not been checked, for aborted iterations and skipped micro-batches. grads NULL:
 * all lists. The scale, the trackers and the gradients stay as they are.
 * @nullable{grads}
 */
GSC_API gsc_status gsc_scaler_discard(gsc_scaler *scaler, gsc_tensor_list *grads);
/**
 * Takes the next slice of gsc_scaler_step, check included: reads and writes at most `max_bytes` of the lists, but at
 * least one chunk, which has up to 65536 elements of one tensor. *out_left receives the bytes that are left. At 0 the
 * step is done: the same bits as in one call, STEPPED, and further calls do nothing until gsc_scaler_update. Call it
 * once in every frame, with what the frame can afford, or from the jobs of your own scheduler.
 *
 * On the CPU any number of threads may take slices of one optimizer at the same time, each with the context's threads
 * that are free. A call that finds nothing to take, since others work on the rest, returns at once with *out_left > 0.
 * On a CUDA device the slices run in the order of the calls, and a step that will be skipped takes as many.
 *
 * In between, leave the buffers and device scalars of the step alone. gsc_scaler_step takes the rest in one call.
 * gsc_scaler_discard, set_scale and set_state cancel. If slices have changed parameters or state, the optimizer then
 * refuses to step and save until gsc_optimizer_load_sync; if they have only checked gradients, it goes on. On a GPU
 * every slice after the check counts as a change.
 *
 * Getters, gsc_scaler_read_report_async and gsc_scaler_scale work in between: the scale cannot change before the step is
 * done. The scaler may check and step other lists and optimizers, also in slices, but not end its iteration: update,
 * set_options and set_reducer fail with BAD_STATE. So does everything else that reads, writes or moves a list of the
 * step, or changes its optimizer, also through another optimizer, a new one, or another scaler.
 *
 * Disabled scaler: as gsc_scaler_step, but call gsc_scaler_update before the next step.
 *
 * Errors: as gsc_scaler_step; INVALID_ARGUMENT if max_bytes < 1.
 */
GSC_API gsc_status gsc_scaler_step_slice(gsc_scaler *scaler, gsc_optimizer *optimizer, int64_t max_bytes,
                                         int64_t *out_left, gsc_stream stream);

/* ---------------------------------------------------------------------------------------------------------------
 * 7. Saving and restoring
 * ------------------------------------------------------------------------------------------------------------ */

/**
 * The scaler's part of a checkpoint. Plain data of fixed layout: write it to a file whole, or field by field. Before you
 * restore one from a file, check that its struct_size is not above the bytes that you have read.
 */
typedef struct gsc_scaler_state {
  uint32_t struct_size;
  /** GSC_SCALER_STATE_FORMAT: tells a scaler's state from other data. */
  uint32_t format;
  /** Growth multiplies the scale by this. */
  double growth_factor;
  /** Backoff multiplies the scale by this. */
  double backoff_factor;
  /** The scale. */
  float scale;
  /** Clean steps between growths. */
  int32_t growth_interval;
  /** Clean steps since the scale last changed: PyTorch's _growth_tracker. */
  int32_t growth_tracker;
  /** Overflows left before the scale backs off. */
  int32_t hysteresis_tracker;
  /** Overflows since the scale last changed. */
  int32_t overflows_since_rescale;
  /** Updates since the scale last changed. */
  int32_t updates_since_rescale;
  /** Skipped updates in a row, the last one included; 0 if it was clean. */
  int32_t consecutive_skips;
  /** Consecutive overflows that could not lower the scale. */
  int32_t skips_at_floor;
  /** Updates so far. */
  int64_t updates;
  /** How many of these found an overflow or a spike. */
  int64_t skipped;
  /** How many of these found a spike and no overflow. */
  int64_t spikes;
} gsc_scaler_state;

/** The value of gsc_scaler_state.format. */
#define GSC_SCALER_STATE_FORMAT 0x31435347u

/** Copies the scaler's state. Errors: BAD_STATE if the scaler is disabled. */
GSC_API gsc_status gsc_scaler_get_state_sync(gsc_scaler *scaler, gsc_scaler_state *out_state, gsc_stream stream);
/**
 * Restores a state with its factors and interval. Validates all of it first. All lists -> READY; clears the history.
 * Disabled scaler: does nothing. Errors: INVALID_ARGUMENT for a truncated or foreign state, a value out of range, or a
 * hysteresis_tracker above the scaler's hysteresis: set the options first.
 */
GSC_API gsc_status gsc_scaler_set_state(gsc_scaler *scaler, const gsc_scaler_state *state, gsc_stream stream);

/** Number of state slots. */
GSC_API gsc_status gsc_optimizer_get_state_count(const gsc_optimizer *optimizer, int32_t *out_count);
/**
 * A state slot: its list, borrowed and valid as long as the optimizer, and its name, in static storage. Either output
 * may be NULL. Read counts and dtypes from the list: later versions may have smaller slots or other dtypes.
 * @nullable{out_list out_name}
 */
GSC_API gsc_status gsc_optimizer_get_state(const gsc_optimizer *optimizer, int32_t slot, gsc_tensor_list **out_list,
                                           const char **out_name);
/**
 * Sets the step counts, 0..2^53 each, when you restore a checkpoint. Every tensor has then taken the applied steps, by
 * which bias corrections go.
 */
GSC_API gsc_status gsc_optimizer_set_steps(gsc_optimizer *optimizer, int64_t applied, int64_t skipped,
                                           gsc_stream stream);
/**
 * Sets the applied steps of each tensor, 0..2^53. The optimizer's count of applied steps becomes the largest; skipped
 * steps stay. `steps` has one number per tensor, in host memory. The first call of an optimizer allocates;
 * capture graphs after it, since a graph captured before counts a step for every tensor.
 * @count{steps count}
 */
GSC_API gsc_status gsc_optimizer_set_tensor_steps(gsc_optimizer *optimizer, const int64_t *steps, int64_t count,
                                                  gsc_stream stream);
/**
 * Sets where each tensor begins in the whole that its optimizer has a shard of, for stochastic rounding, from the next
 * step on, stream-ordered. `offsets` has one number per tensor, in host memory: multiples of 32, 0..2^53, by
 * which a shard draws the random bits that the same elements of the whole draw. They are not saved. Default: the number
 * of elements in the tensors before it, each rounded up to a multiple of 32.
 * @count{offsets count}
 */
GSC_API gsc_status gsc_optimizer_set_offsets(gsc_optimizer *optimizer, const int64_t *offsets, int64_t count,
                                             gsc_stream stream);
/** Bytes that gsc_optimizer_save_sync writes. */
GSC_API gsc_status gsc_optimizer_get_save_size(const gsc_optimizer *optimizer, int64_t *out_bytes);
/**
 * Writes the step counts, all state tensors and a checksum to `size` bytes of host memory. `size` is that of
 * gsc_optimizer_get_save_size; docs/reference/abi.md has every offset. If the device fails, the buffer holds only a
 * part.
 * @count{buffer size}
 */
GSC_API gsc_status gsc_optimizer_save_sync(gsc_optimizer *optimizer, void *buffer, int64_t size, gsc_stream stream);
/**
 * Restores what gsc_optimizer_save_sync wrote on a machine of the same byte order. Validates all of it first.
 * Errors: INVALID_ARGUMENT for truncated, damaged or foreign data, another kind, other counts or dtypes.
 * @count{buffer size}
 */
GSC_API gsc_status gsc_optimizer_load_sync(gsc_optimizer *optimizer, const void *buffer, int64_t size,
                                           gsc_stream stream);

/* ---------------------------------------------------------------------------------------------------------------
 * 8. The policy and its presets
 *
 * docs/reference/semantics.md has the exact rules, docs/concepts.md the sources of the presets.
 * ------------------------------------------------------------------------------------------------------------ */

/** When hysteresis_tracker returns to `hysteresis`. @type{HysteresisRefill GSC_REFILL_} */
enum {
  /** When the scale grows (Megatron-LM, DeepSpeed, ColossalAI). */
  GSC_REFILL_ON_GROWTH = 0,
  /** On every step without overflow (Apex update_scale_hysteresis, DeepSpeed consecutive_hysteresis). */
  GSC_REFILL_ON_CLEAN_STEP = 1,
  /** On every step without overflow and after every backoff: each N-th consecutive overflow backs off (Paddle). */
  GSC_REFILL_CONSECUTIVE = 2
};

/** The clean step at which the scale grows; G is the growth interval. @type{GrowthTiming GSC_GROWTH_} */
enum {
  /** The G-th in a row, then every G (PyTorch and most others). */
  GSC_GROWTH_AT_INTERVAL = 0,
  /** The (G+1)-th in a row, then every G+1 (Flax: the interval is tested before the increment). */
  GSC_GROWTH_ONE_LATER = 1,
  /** The (G+1)-th in a row, then every G (DeepSpeed). */
  GSC_GROWTH_FIRST_ONE_LATER = 2
};

/** What happens on overflow when the scale is at its floor, min_scale. @type{FloorAction GSC_FLOOR_} */
enum {
  /** The scale stays there. */
  GSC_FLOOR_CLAMP = 0,
  /**
   * As GSC_FLOOR_CLAMP; after floor_patience skips in a row the report has GSC_REPORT_AT_FLOOR and a warning is logged.
   */
  GSC_FLOOR_REPORT = 1,
  /** As GSC_FLOOR_REPORT; gsc_scaler_get_report_sync then fails with GSC_ERROR_SCALE_FLOOR and fills in the report. */
  GSC_FLOOR_ERROR = 2
};

/**
 * What happens when spike_patience steps of a list were skipped in a row because their norm was above its limit.
 * @type{SpikeAction GSC_SPIKE_}
 */
enum {
  /** The next step is taken, and the average moves to the norms in that row: the gradients have changed for good. */
  GSC_SPIKE_STEP = 0,
  /**
   * Further spikes are skipped too. The report has GSC_REPORT_SPIKES_PERSIST, a warning is logged, and
   * gsc_scaler_get_report_sync fails with GSC_ERROR_SPIKES and fills in the report.
   */
  GSC_SPIKE_ERROR = 1
};

/** Bits of gsc_scaler_options.flags. @flags_of{gsc_scaler_options GSC_SCALER_} */
enum {
  /** Grow only when the tracker equals the interval: PyTorch's exact rule. Default: also when it exceeds the interval.
   *  They differ if the interval is lowered below the tracker: with this flag the scale then never grows. @jax */
  GSC_SCALER_GROW_ON_EQUAL = 1,
  /** Store a grown scale even if it is inf (Keras 3, Megatron-LM, DeepSpeed). Default: keep the old scale. @jax */
  GSC_SCALER_NO_FINITE_GUARD = 2,
  /** A backoff to min_scale or below keeps the old scale; the scale is then at its floor (fairseq). @jax */
  GSC_SCALER_FLOOR_EXCLUSIVE = 4,
  /** Round the factors to fp32 and multiply in fp32 (Megatron-LM, ColossalAI, Paddle, Flax, jmp, Keras 3). Default:
   *  multiply in fp64 and round the product (PyTorch). They differ only for factors that are not powers of two. @jax */
  GSC_SCALER_FP32_PRODUCTS = 8,
  /** The scale stays what it is set to. An overflow skips the step, and counts as one at the floor. @jax */
  GSC_SCALER_STATIC_SCALE = 16
};

/** The policy of a scaler. Start from GSC_SCALER_OPTIONS_INIT or gsc_scaler_options_init. */
struct gsc_scaler_options {
  uint32_t struct_size;
  /** GSC_SCALER_* bits. @default{0} */
  uint32_t flags;
  /** First scale, within min_scale and max_scale. @range{> 0} @default{65536} */
  float init_scale;
  /**
   * Floor of the scale. A scale that gsc_scaler_set_scale sets below it stays until it grows.
   * @none{0} @range{> 0} @default{0} @jax
   */
  float min_scale;
  /** Ceiling of the scale. @none{0} @range{> 0} @default{0} @jax */
  float max_scale;
  /** Clean steps between growths. @range{>= 1} @default{2000} @jax */
  int32_t growth_interval;
  /** Growth multiplies the scale by this. Refused if init_scale rounds back to itself. @range{> 1} @default{2} @jax */
  double growth_factor;
  /**
   * Backoff multiplies the scale by this. Refused if init_scale rounds back to itself.
   * @range{(0, 1)} @default{0.5} @jax
   */
  double backoff_factor;
  /**
   * Whether the scaler does anything. If not, the scale is 1, gradients are not checked and every step is applied.
   * @bool @default{1}
   */
  int32_t enabled;
  /** Overflows until the scale backs off. 1: each of them. @range{>= 1} @default{1} @jax */
  int32_t hysteresis;
  /** When the count of overflows starts again. @enum{HysteresisRefill} @default{GSC_REFILL_ON_GROWTH} @jax */
  int32_t hysteresis_refill;
  /** The clean step that grows. @enum{GrowthTiming} @default{GSC_GROWTH_AT_INTERVAL} @jax */
  int32_t growth_timing;
  /** Back off only if overflows / updates since the last rescale >= this (fairseq). @range{[0, 1]} @default{0} @jax */
  double overflow_tolerance;
  /**
   * While the scale is below this, recovery_interval replaces growth_interval (NVIDIA Modulus). 0: never.
   * @range{>= 0} @default{0} @jax
   */
  float recovery_threshold;
  /** See recovery_threshold. At least 1 if that is set. @default{0} @jax */
  int32_t recovery_interval;
  /** What happens at the floor. @enum{FloorAction} @default{GSC_FLOOR_CLAMP} */
  int32_t floor_action;
  /** Consecutive skipped updates at the floor until it is reported. @range{>= 1} @default{1} */
  int32_t floor_patience;
  /**
   * Updates kept in the history ring. Creation allocates 32 bytes of device memory for each. 16 show what led to a skip.
   * To plot the scale, give the number of steps between two reads.
   * @range{0..2^20} @default{16}
   */
  int32_t history_capacity;
  int32_t reserved;
  /**
   * Skip steps whose gradient norm is above this: the L2 norm of the unscaled gradients of a list before clipping, with a
   * reducer over all ranks. Each list is judged by its own norm. The scale does not back off for it.
   * @none{0} @range{> 0} @default{0}
   */
  double skip_norm;
  /**
   * Skip steps whose norm is above this many times the average norm and, in standard deviations, above spike_deviations.
   * The average is the geometric mean of the list's norms so far, without those that lie so far off. 2 is a good value.
   * @none{0} @range{>= 1} @default{0}
   */
  double spike_factor;
  /**
   * With spike_factor: the logarithm of the norm must also be more than this many standard deviations above its mean.
   * @range{>= 0} @default{5}
   */
  double spike_deviations;
  /**
   * The newest norm counts 1 / spike_window in the average, at first more. spike_factor skips nothing before half as many
   * norms are in it.
   * @range{1..2^20} @default{128}
   */
  int32_t spike_window;
  /** Norms in the average before any step is skipped, also by skip_norm. @range{>= 0} @default{0} */
  int32_t spike_warmup;
  /** Steps of a list that are skipped for their norm in a row until spike_action. 0: no end. @range{>= 0} @default{10} */
  int32_t spike_patience;
  /** What happens then. @enum{SpikeAction} @default{GSC_SPIKE_STEP} */
  int32_t spike_action;
};

/** PyTorch's policy. Equals what gsc_scaler_options_init writes for GSC_PRESET_TORCH. */
#define GSC_SCALER_OPTIONS_INIT                                                                                    \
  {                                                                                                                \
    (uint32_t)sizeof(gsc_scaler_options), 0, 65536.0f, 0.0f, 0.0f, 2000, 2.0, 0.5, 1, 1, GSC_REFILL_ON_GROWTH,     \
        GSC_GROWTH_AT_INTERVAL, 0.0, 0.0f, 0, GSC_FLOOR_CLAMP, 1, 16, 0, 0.0, 0.0, 5.0, 128, 0, 10, GSC_SPIKE_STEP \
  }

/** Presets. All but the last two reproduce another system's policy step by step. @type{Preset GSC_PRESET_} */
enum {
  /** torch.amp.GradScaler; the default. */
  GSC_PRESET_TORCH = 0,
  /** apex.amp.scaler.LossScaler. */
  GSC_PRESET_APEX = 1,
  /** Apex's update_scale_hysteresis kernel, with hysteresis 2. */
  GSC_PRESET_APEX_HYSTERESIS = 2,
  /** megatron.core DynamicGradScaler. */
  GSC_PRESET_MEGATRON = 3,
  /** deepspeed DynamicLossScaler. @name{DeepSpeed} */
  GSC_PRESET_DEEPSPEED = 4,
  /** tf.keras.mixed_precision.LossScaleOptimizer (TensorFlow 2). @name{TensorFlow} */
  GSC_PRESET_TENSORFLOW = 5,
  /** keras.optimizers.LossScaleOptimizer (Keras 3). */
  GSC_PRESET_KERAS = 6,
  /** flax.training.dynamic_scale.DynamicScale. */
  GSC_PRESET_FLAX = 7,
  /** jmp.DynamicLossScale under jit. Without jit, clear GSC_SCALER_FP32_PRODUCTS. */
  GSC_PRESET_JMP = 8,
  /** paddle.amp.GradScaler. */
  GSC_PRESET_PADDLE = 9,
  /** mindspore.amp.DynamicLossScaler. @name{MindSpore} */
  GSC_PRESET_MINDSPORE = 10,
  /** fairseq.optim.dynamic_loss_scaler.DynamicLossScaler. */
  GSC_PRESET_FAIRSEQ = 11,
  /** oneflow.amp.GradScaler. @name{OneFlow} */
  GSC_PRESET_ONEFLOW = 12,
  /** colossalai DynamicGradScaler. @name{ColossalAI} */
  GSC_PRESET_COLOSSALAI = 13,
  /** No loss scale: checks, skips, clips and reports at scale 1, for bf16 and fp32 training. */
  GSC_PRESET_CHECK = 14,
  /** A scale that stays, 128 unless you set init_scale. An overflow skips the step. */
  GSC_PRESET_STATIC_SCALE = 15
};

/**
 * Writes the options of GSC_PRESET_*. Same contract as gsc_optimizer_options_init; an unknown preset is an error.
 * @enum{preset Preset}
 */
GSC_API gsc_status gsc_scaler_options_init(gsc_scaler_options *options, uint32_t struct_size, int32_t preset);
/** Copies the current options. init_scale is the one given at creation. */
GSC_API gsc_status gsc_scaler_get_options(const gsc_scaler *scaler, gsc_scaler_options *out_options);
/**
 * Replaces the options. Scale, trackers and history stay; a hysteresis tracker above the new hysteresis is lowered to
 * it. init_scale, enabled and history_capacity must be as at creation.
 */
GSC_API gsc_status gsc_scaler_set_options(gsc_scaler *scaler, const gsc_scaler_options *options, gsc_stream stream);
/**
 * Replaces the scale (finite, > 0), as PyTorch's update(new_scale). Keeps the growth tracker and ignores min_scale and
 * max_scale. All lists -> READY. Disabled scaler: does nothing.
 */
GSC_API gsc_status gsc_scaler_set_scale(gsc_scaler *scaler, float scale, gsc_stream stream);

/* ---------------------------------------------------------------------------------------------------------------
 * 9. Several devices, several ranks
 *
 * Several devices in one process: create a context for each, and one scaler on the first. Use lists and optimizers of
 * the other contexts like the first's, and pass a stream of the list's device.
 *
 *     gsc_scaler_step(scaler, opt0, stream0);   // of the scaler's device
 *     gsc_scaler_step(scaler, opt1, stream1);   // of another: fetches the scale, checks, steps or skips there
 *     gsc_scaler_update(scaler, stream0);       // waits, on the device, for both; one overflow anywhere backs off
 *
 * The host does not wait in these calls. Only a list's first call with the scaler allocates. Calls without a list, and
 * the reports of any list, take a stream of the scaler's device. A graph captured over several devices must contain
 * whole iterations, and must begin by making the other streams wait for the first. As on one device, each list is
 * skipped and clipped separately. All contexts must be of one kind, CPU or CUDA.
 * ------------------------------------------------------------------------------------------------------------ */

/**
 * All-reduce (sum) over the ranks of a job: replaces values[0..count) by their sums over all ranks. `values` is device
 * memory. For CUDA, enqueue the work on `stream`; on the CPU, finish it before returning. Every rank calls it the same
 * number of times in the same order. Return 0 on success, any other number on failure.
 */
typedef int32_t (*gsc_all_reduce_fn)(void *user, double *values, int64_t count, gsc_stream stream);
/** How the ranks of a job combine their checks. */
typedef struct gsc_reducer {
  uint32_t struct_size;
  /** 0. */
  uint32_t flags;
  gsc_all_reduce_fn all_reduce;
  void *user;
} gsc_reducer;

/**
 * Combines the checks of each list over all ranks, with one all-reduce of two doubles (non-finite count, sum of
 * squares). If one rank overflows, all skip; clipping uses the norm over all ranks. The struct is copied; `user` must
 * outlive its use. NULL removes the reducer.
 *
 * If the all-reduce fails or throws, the call returns GSC_ERROR_CALLBACK; for std::bad_alloc it returns OUT_OF_MEMORY.
 * A step or check then leaves its list READY and every value as it was: check the list again, or discard it. An unscale
 * has already multiplied the gradients: its list is UNSCALED and marked as overflowed. Sums that are NaN, negative or
 * above 2^53 elements are a failure on the CPU. On a CUDA device, where the host does not read them, they count as an
 * overflow.
 * Errors: INVALID_ARGUMENT; BAD_STATE if a list has been used since the last update.
 *
 * @nullable{reducer}
 */
GSC_API gsc_status gsc_scaler_set_reducer(gsc_scaler *scaler, const gsc_reducer *reducer);

/* ---------------------------------------------------------------------------------------------------------------
 * 10. Devices, and embedding in an application
 * ------------------------------------------------------------------------------------------------------------ */

/** Kinds of device. @type{DeviceType GSC_DEVICE_} */
enum {
  /** The host's processors. */
  GSC_DEVICE_CPU = 0,
  /** An NVIDIA GPU. */
  GSC_DEVICE_CUDA = 1
};

/**
 * Number of devices of a kind: 1 for the CPU; for CUDA, 0 with GSC_OK without a driver or if built without it.
 * @enum{device_type DeviceType}
 */
GSC_API gsc_status gsc_device_get_count(int32_t device_type, int32_t *out_count);

/** Description of a device. */
typedef struct gsc_device_info {
  uint32_t struct_size;
  /** @enum{DeviceType} */
  int32_t device_type;
  int32_t device_index;
  /** CPU: threads this process may run on. CUDA: number of multiprocessors. */
  int32_t units;
  /** CPU: GSC_CPU_*, the best usable one. CUDA: 10 * major + minor compute capability. */
  int32_t level;
  int32_t reserved;
  /** Memory of the device in bytes; 0 if unknown. */
  int64_t memory_bytes;
  /** Zero-terminated name. */
  char name[128];
} gsc_device_info;

/** Describes a device. Errors: UNAVAILABLE if there is no such device. @enum{device_type DeviceType} */
GSC_API gsc_status gsc_device_get_info(int32_t device_type, int32_t device_index, gsc_device_info *out_info);

/** Instruction sets of the CPU kernels, all of which give the same bits. @type{CpuTarget GSC_CPU_} */
enum {
  /** The best that the processor and the build support. */
  GSC_CPU_BEST = 0,
  /** Plain C++ for the compiler's baseline (SSE2 on x86-64, NEON on AArch64). */
  GSC_CPU_BASELINE = 1,
  /** AVX2, FMA and F16C. */
  GSC_CPU_AVX2 = 2,
  /** AVX-512 F, BW, DQ and VL. */
  GSC_CPU_AVX512 = 3,
  /** NEON with the conversions to bf16 of later AArch64 processors. */
  GSC_CPU_NEON_BF16 = 4
};

/** Log levels, most severe first. @type{LogLevel GSC_LOG_} */
enum {
  /** Something failed. */
  GSC_LOG_ERROR = 1,
  /** Something is probably wrong. */
  GSC_LOG_WARNING = 2,
  /** For information. */
  GSC_LOG_INFO = 3
};

/** Receives one message without a trailing newline, on the thread whose call caused it. Exceptions are dropped. */
typedef void (*gsc_log_fn)(void *user, int32_t level, const char *message);
/** One task of a parallel region: call it as body(argument, index). */
typedef void (*gsc_task_fn)(void *argument, int32_t index);
/**
 * Your job system: calls body(argument, i) once for every i in [0, count), in any order and on any threads, and returns
 * when all have finished. If it throws, omits a task or repeats one, the library's call still does all its work, and
 * returns GSC_ERROR_CALLBACK. The exception is gsc_optimizer_create, which then makes no object.
 */
typedef void (*gsc_parallel_for_fn)(void *user, int32_t count, gsc_task_fn body, void *argument);
/**
 * Returns `bytes` (> 0) bytes of host memory aligned to `alignment` (a power of two, at most 64), or NULL. Runs on any
 * thread that calls the library. NULL and std::bad_alloc make the call fail with OUT_OF_MEMORY, other exceptions with
 * GSC_ERROR_CALLBACK.
 */
typedef void *(*gsc_allocate_fn)(void *user, int64_t bytes, int64_t alignment);
/** Frees what gsc_allocate_fn returned; bytes and alignment are those of the request. Exceptions are dropped. */
typedef void (*gsc_release_fn)(void *user, void *memory, int64_t bytes, int64_t alignment);

/** Bits of gsc_context_options.flags. @flags_of{gsc_context_options GSC_CONTEXT_} */
enum {
  /**
   * CUDA: use the CUDA context that is current on the calling thread at creation, instead of the device's primary
   * context. For programs that create a CUDA context (cuCtxCreate, ILGPU, ManagedCUDA), whose memory and streams are
   * invalid in the primary context. Your CUDA context must outlive the gsc_context and all its objects.
   */
  GSC_CONTEXT_USE_CURRENT = 1
};

/** Options of a context. Start from GSC_CONTEXT_OPTIONS_INIT or gsc_context_options_init. */
struct gsc_context_options {
  uint32_t struct_size;
  /** GSC_CONTEXT_* bits. @default{0} */
  uint32_t flags;
  /** @enum{DeviceType} @default{GSC_DEVICE_CPU} */
  int32_t device_type;
  /** Number of the CUDA device; 0 for the CPU. @default{0} */
  int32_t device_index;
  /**
   * CPU threads per call, including the calling one. 0: one per processor of this process. 1: no pool.
   * @range{0..1024} @default{0}
   */
  int32_t num_threads;
  /**
   * GSC_CPU_BEST, or one instruction set (an error if the processor lacks it).
   * @enum{CpuTarget} @default{GSC_CPU_BEST}
   */
  int32_t cpu_target;
  /** NULL: the library's thread pool. Otherwise your job system, which gets a few tasks per thread of num_threads. Not
   *  called if num_threads is 1. */
  gsc_parallel_for_fn parallel_for;
  void *parallel_for_user;
  /** Host memory for everything the library keeps except its threads. Set both or neither. NULL: operator new. */
  gsc_allocate_fn allocate;
  gsc_release_fn release;
  void *allocator_user;
  /** NULL: silent. */
  gsc_log_fn log;
  void *log_user;
  /**
   * CUDA: a cudaMemPool_t of the device for all device memory, that is state, tables of lists, records and scratch. It
   * must outlive the context and its objects, and gets memory back in stream order, without a wait. NULL: cudaMalloc, and a pool of the library's for scratch.
   */
  void *device_pool;
};

/** The CPU with all its threads. Equals what gsc_context_options_init writes. */
#define GSC_CONTEXT_OPTIONS_INIT \
  { (uint32_t)sizeof(gsc_context_options), 0, GSC_DEVICE_CPU, 0, 0, GSC_CPU_BEST, 0, 0, 0, 0, 0, 0, 0, 0 }

/** Writes the defaults. Same contract as gsc_optimizer_options_init. */
GSC_API gsc_status gsc_context_options_init(gsc_context_options *options, uint32_t struct_size);
/**
 * The device of a context. Either output may be NULL.
 * @enum{out_device_type DeviceType} @nullable{out_device_type out_device_index}
 */
GSC_API gsc_status gsc_context_get_device(const gsc_context *context, int32_t *out_device_type,
                                          int32_t *out_device_index);
/**
 * The instruction set (GSC_CPU_*) and thread count in use on the CPU. Either output may be NULL.
 * @enum{out_cpu_target CpuTarget} @nullable{out_cpu_target out_num_threads}
 */
GSC_API gsc_status gsc_context_get_cpu(const gsc_context *context, int32_t *out_cpu_target, int32_t *out_num_threads);
/**
 * Bytes that a context and its objects hold now, without threads, and on a CUDA device without scratch and what destroyed
 * objects have left to the next creation, which frees it. What one object holds is the difference that its creation
 * makes. On the CPU all memory is host memory. Either output may be NULL.
 * @nullable{out_host_bytes out_device_bytes}
 */
GSC_API gsc_status gsc_context_get_memory(const gsc_context *context, int64_t *out_host_bytes,
                                          int64_t *out_device_bytes);
/** Replaces the log callback; NULL turns logging off. No other thread may be using the context. @nullable{log user} */
GSC_API gsc_status gsc_context_set_log(gsc_context *context, gsc_log_fn log, void *user);

/* ---------------------------------------------------------------------------------------------------------------
 * 11. Diagnosis and histograms
 * ------------------------------------------------------------------------------------------------------------ */

/** Statistics of one tensor. */
typedef struct gsc_tensor_diagnosis {
  /** Number of elements. */
  int64_t count;
  /** Number of +inf and -inf. */
  int64_t inf_count;
  /** Number of NaN. */
  int64_t nan_count;
  /** Number of +0 and -0. */
  int64_t zero_count;
  /** Number of non-zero values below the smallest normal number of the tensor's dtype. */
  int64_t subnormal_count;
  /** Index of the first inf or NaN; -1 if there is none. */
  int64_t first_nonfinite;
  /** Largest magnitude of the finite values; 0 if there are none. */
  double amax;
  /** Smallest non-zero magnitude of the finite values; 0 if there are none. */
  double amin;
  /** Square root of the sum of squares of the finite values, summed in fp64. */
  double l2_norm;
} gsc_tensor_diagnosis;

/** Bins of an exponent histogram: bin b counts the finite values x with floor(log2(|x|)) == b + GSC_EXPONENT_MIN. */
#define GSC_EXPONENT_BINS 288
/** Exponent of bin 0. Smaller exponents count in bin 0, larger ones (fp64 only) in the last. Zeros are not counted. */
#define GSC_EXPONENT_MIN (-160)

/**
 * Computes the statistics of every tensor. `out_diagnosis` has `count` entries, one per tensor; `out_histogram`, if not
 * NULL, has count * GSC_EXPONENT_BINS entries, tensor after tensor. Both are in host memory. Tensors are only read.
 * @count{out_diagnosis count} @nullable{out_histogram}
 */
GSC_API gsc_status gsc_tensor_list_diagnose_sync(const gsc_tensor_list *list, gsc_tensor_diagnosis *out_diagnosis,
                                                 int64_t *out_histogram, int64_t count, gsc_stream stream);
/**
 * Recommends a loss scale from an exponent histogram of gradients, taken at scale `current_scale` (> 0, finite). It is
 * the largest power of two that keeps the largest magnitude two binades below the overflow limit of `dtype`, the dtype
 * in which the gradients are computed. An empty histogram recommends current_scale. `bins` is GSC_EXPONENT_BINS.
 * `out_flushed`, if not NULL, receives the share (0..1) of the counted values that stay below that dtype's smallest
 * subnormal at the recommended scale. All pointers are host memory.
 *
 * @count{histogram bins} @enum{dtype DType} @nullable{out_flushed}
 */
GSC_API gsc_status gsc_histogram_recommend_scale(const int64_t *histogram, int64_t bins, float current_scale,
                                                 int32_t dtype, float *out_scale, double *out_flushed);

/* ---------------------------------------------------------------------------------------------------------------
 * 12. Operations without a scaler
 *
 * For frameworks that keep the scaler's state in their own arrays. Tensors are validated like those of a list, except
 * for overlap. src[i] and dst[i] must be the same buffer or not overlap, which is checked. The caller must ensure that
 * dst[j] overlaps neither src[i] nor dst[i] for i != j.
 * Device scalars must be aligned to their size and overlap neither the tensors nor each other. The context keeps the
 * host memory of the plan: a repeated call does not allocate.
 * ------------------------------------------------------------------------------------------------------------ */

/**
 * t[i] *= *inv_scale in place for each tensor t[i], as PyTorch's _amp_foreach_non_finite_check_and_unscale_. Sets
 * *found_inf to 1 if any element is inf or NaN before or after; otherwise leaves it as it is. Both are device scalars.
 * fp64 gradients overflow at fp64's limit, since no optimizer converts them to fp32 here.
 * @count{tensors count} @device{found_inf inv_scale}
 */
GSC_API gsc_status gsc_ops_unscale_check(gsc_context *context, const gsc_tensor *tensors, int64_t count,
                                         float *found_inf, const float *inv_scale, gsc_stream stream);
/**
 * PyTorch's _amp_update_scale_ on device scalars: backs the scale off if *found_inf != 0; otherwise counts a clean step
 * and grows the scale at the interval. Factors and interval are validated as in gsc_scaler_options.
 * @device{scale growth_tracker found_inf}
 */
GSC_API gsc_status gsc_ops_update_scale(gsc_context *context, float *scale, int32_t *growth_tracker,
                                        const float *found_inf, double growth_factor, double backoff_factor,
                                        int32_t growth_interval, gsc_stream stream);
/**
 * dst[i] = src[i] * *factor. `factor` is a device scalar. Dtypes may differ, and src and dst may be the same buffers.
 * Rounds as gsc_scaler_scale does.
 * @count{src count} @count{dst count} @device{factor}
 */
GSC_API gsc_status gsc_ops_scale(gsc_context *context, const gsc_tensor *src, const gsc_tensor *dst, int64_t count,
                                 const float *factor, gsc_stream stream);
/**
 * y[i] = a * x[i] + b * y[i] in fp32 (fp64 if either is fp64): gradient accumulation. With b = 0 y is only written.
 * @count{x count} @count{y count}
 */
GSC_API gsc_status gsc_ops_axpby(gsc_context *context, double a, const gsc_tensor *x, double b, const gsc_tensor *y,
                                 int64_t count, gsc_stream stream);
/**
 * dst[i] = src[i], converted to dst's dtype, rounded to nearest even. A plain copy for equal dtypes.
 * @count{src count} @count{dst count}
 */
GSC_API gsc_status gsc_ops_cast(gsc_context *context, const gsc_tensor *src, const gsc_tensor *dst, int64_t count,
                                gsc_stream stream);
/**
 * Converts optimizer state between its formats, rounded to nearest, as gsc_optimizer_load_sync does: dst[i] = src[i].
 * Both are fp32 or codes of one kind of slot, or both are remainders; equal dtypes keep their bits. If one is fp32 and
 * the other a remainder, the fp32 tensor holds masters, and weights[i] their fp16 or bf16 weights, which are only read;
 * a master that does not round to its weight has the remainder of the weight it rounds to. Else `weights` may be NULL.
 * Takes FlashOptim's GSC_INT8_SOFTSIGN and GSC_UINT8_SQRT as codes, too. dst[i] must overlap neither src[i] nor
 * weights[i], and no tensor its own scales, which is checked, scales included.
 *
 * @count{src count} @count{weights count} @count{dst count} @nullable{weights}
 */
GSC_API gsc_status gsc_ops_convert_state(gsc_context *context, const gsc_tensor *src, const gsc_tensor *weights,
                                         const gsc_tensor *dst, int64_t count, gsc_stream stream);
/**
 * Writes the norm over all tensors to the device scalar *out_norm. Writes the norm of each tensor to
 * out_tensor_norms[0..count) in device memory, unless that is NULL. NaN and inf propagate. The sums of tiles of a few
 * thousand elements are added in fp64. norm_type is GSC_NORM_L2 or GSC_NORM_INF.
 * @count{tensors count} @device{out_norm out_tensor_norms} @enum{norm_type Norm} @nullable{out_tensor_norms}
 */
GSC_API gsc_status gsc_ops_norm(gsc_context *context, const gsc_tensor *tensors, int64_t count, int32_t norm_type,
                                double *out_norm, double *out_tensor_norms, gsc_stream stream);

/* ---------------------------------------------------------------------------------------------------------------
 * 13. The library, and its function table
 *
 * Programs that load the library at run time need one symbol, gsc_library_get_api: see <gradscaler/loader.h>.
 * ------------------------------------------------------------------------------------------------------------ */

/** Product version as "major.minor.patch". Static storage. */
GSC_API const char *gsc_library_get_version(void);
/** The library's ABI number; equals GSC_ABI_VERSION of the header it was built with. */
GSC_API uint32_t gsc_library_get_abi_version(void);
/** One line for bug reports: version, ABI, compiler, instruction sets, CUDA architectures. Static storage. */
GSC_API const char *gsc_library_get_build_info(void);

/** Pointers to all functions above; defined in <gradscaler/api.h>. Append-only. */
typedef struct gsc_api gsc_api;
/**
 * The function table for ABI number `abi_version`, or NULL if this library does not provide it. Static storage; valid
 * until the library is unloaded. Check struct_size before using a field that a later release appended.
 */
GSC_API const gsc_api *gsc_library_get_api(uint32_t abi_version);

#ifdef __cplusplus
}
#endif
#endif /* GRADSCALER_GRADSCALER_H */

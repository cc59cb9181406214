/* SPDX-License-Identifier: Apache-2.0
 *
 * Names for the languages whose public classes are written by hand over what SWIG makes (Java and C#): everything that
 * SWIG makes is called Native... and is not visible outside. Included after the common renames, which it overrides.
 */
%rename(NativeContextOptions) gsc_context_options;
%rename(NativeDeviceInfo) gsc_device_info;
%rename(NativeContext) gsc_context;
%rename(NativeTensor) gsc_tensor;
%rename(NativeTensorArray) gsc_tensor_array;
%rename(NativeNumbers) gsc_numbers;
%rename(NativeTensorList) gsc_tensor_list;
%rename(NativeTensorDiagnosis) gsc_tensor_diagnosis;
%rename(NativeDiagnoses) gsc_diagnoses;
%rename(NativeRecommendation) gsc_recommendation;
%rename(NativeScalerOptions) gsc_scaler_options;
%rename(NativeScaler) gsc_scaler;
%rename(NativeReport) gsc_report;
%rename(NativeHistory) gsc_history;
%rename(NativeHistoryEntry) gsc_history_entry;
%rename(NativeDeviceState) gsc_device_state;
%rename(NativeScalerState) gsc_scaler_state;
%rename(NativeOptimizerOptions) gsc_optimizer_options;
%rename(NativeOptimizer) gsc_optimizer;

/* The public layers have their own. */
%ignore gsc_status_get_name;
%ignore gsc_library_get_abi_version;
%ignore GSC_ABI_VERSION;
%ignore GSC_SCALER_STATE_FORMAT;

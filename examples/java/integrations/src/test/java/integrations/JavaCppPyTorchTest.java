// SPDX-License-Identifier: Apache-2.0
package integrations;

import static org.bytedeco.pytorch.global.torch.ones;
import static org.bytedeco.pytorch.global.torch.randn;
import static org.bytedeco.pytorch.global.torch.zeros;
import static org.junit.jupiter.api.Assertions.*;

import io.github.gradscaler.Context;
import io.github.gradscaler.DType;
import io.github.gradscaler.Ops;
import io.github.gradscaler.TensorList;
import java.lang.ref.WeakReference;
import java.util.ArrayList;
import java.util.List;
import org.bytedeco.javacpp.FloatPointer;
import org.bytedeco.pytorch.Tensor;
import org.bytedeco.pytorch.global.torch.ScalarType;
import org.junit.jupiter.api.Test;

/** What JavaCppPyTorch takes is what gradscaler reads and writes; what it would misread is refused. */
class JavaCppPyTorchTest {
  private static void refused(String part, Tensor tensor) {
    final IllegalArgumentException e =
        assertThrows(IllegalArgumentException.class, () -> JavaCppPyTorch.tensor(tensor));
    assertTrue(e.getMessage().contains(part), e.getMessage());
  }

  @Test
  void otherTypesAreRefused() {
    refused("of type Int", ones(4, 3).to(ScalarType.Int));
    refused("of type Short", ones(4, 3).to(ScalarType.Short));
    refused("of type Long", ones(4, 3).to(ScalarType.Long));
    refused("of type ComplexFloat", ones(4, 3).to(ScalarType.ComplexFloat));
  }

  @Test
  void whatIsNotContiguousIsRefused() {
    refused("not contiguous", randn(4, 3).t());
    refused("not contiguous", randn(4, 3).narrow(1, 0, 2));
    refused("not contiguous", randn(1, 3).expand(4, 3));
  }

  @Test
  void everyTypeIsWrittenInPlace() {
    final ScalarType[] types = {ScalarType.Half, ScalarType.BFloat16, ScalarType.Float, ScalarType.Double};
    final DType[] dtypes = {DType.FP16, DType.BF16, DType.FP32, DType.FP64};
    try (Context context = Context.cpu(1)) {
      for (int i = 0; i < types.length; i++) {
        final Tensor source = randn(5, 7);
        final Tensor target = zeros(6, 7).to(types[i]);
        // Rows 1 to 5: the address includes the storage offset.
        final Tensor rows = target.narrow(0, 1, 5);
        assertEquals(dtypes[i], JavaCppPyTorch.tensor(rows).dtype());
        Ops.cast(context, JavaCppPyTorch.tensor(source), JavaCppPyTorch.tensor(rows));
        assertTrue(rows.equal(source.to(types[i])));
        assertEquals(0, target.narrow(0, 0, 1).to(ScalarType.Float).abs().sum().item_float());
      }
    }
  }

  /** The lists are all that refers to a pointer and a tensor, whose memory goes when they are collected. */
  @Test
  void listsKeepPointersAndTensorsAlive() throws InterruptedException {
    try (Context context = Context.cpu(1)) {
      final List<WeakReference<Object>> owners = new ArrayList<>();
      final TensorList[] lists = {ofPointer(context, owners), ofTensor(context, owners)};
      for (int i = 0; i < 10; i++) {
        System.gc();
        Thread.sleep(10);
      }
      for (int i = 0; i < lists.length; i++) {
        assertNotNull(owners.get(i).get());
        assertEquals(1.0, lists[i].diagnose().get(0).amax());
        lists[i].close();
      }
    }
  }

  private static TensorList ofPointer(Context context, List<WeakReference<Object>> owners) {
    final FloatPointer pointer = new FloatPointer(1, 1, 1);
    owners.add(new WeakReference<>(pointer));
    return new TensorList(context, JavaCpp.tensor(pointer));
  }

  private static TensorList ofTensor(Context context, List<WeakReference<Object>> owners) {
    final Tensor tensor = ones(1000);
    owners.add(new WeakReference<>(tensor));
    return new TensorList(context, JavaCppPyTorch.tensor(tensor));
  }

  @Test
  void pointersOfJavaCpp() {
    try (Context context = Context.cpu(1); FloatPointer pointer = new FloatPointer(1, 2, 3, 4, 5)) {
      pointer.position(1).limit(4);
      final io.github.gradscaler.Tensor[] middle = {JavaCpp.tensor(pointer)};
      Ops.axpby(context, 0, middle, 0, middle);
      pointer.position(0);
      final float[] left = new float[4];
      pointer.get(left);
      assertArrayEquals(new float[] {1, 0, 0, 0}, left);
    }
    assertThrows(IllegalArgumentException.class, () -> JavaCpp.tensor(new FloatPointer()));
    // Of native code, without a length: a list of none of its elements would be stepped on without a word.
    final Tensor owner = ones(4);
    final FloatPointer bare = new FloatPointer(owner.data_ptr());
    assertThrows(IllegalArgumentException.class, () -> JavaCpp.tensor(bare));
    assertEquals(4, JavaCpp.tensor(bare.capacity(4)).count());
  }
}

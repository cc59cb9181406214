// SPDX-License-Identifier: Apache-2.0
// Handles of Vulkan reach the library, if it has that backend. There arrays are refused.
using System;
using System.Runtime.InteropServices;
using NUnit.Framework;

namespace Gradscaler.Tests
{
  [TestFixture]
  public class VulkanTests
  {
    private delegate IntPtr Find(IntPtr instance, IntPtr name);

    [Test]
    public void HandlesReachTheLibrary()
    {
      IntPtr asked = IntPtr.Zero, one = new IntPtr(1);
      Find find = (instance, name) =>
      {
        asked = instance;
        return IntPtr.Zero;
      };
      var device = new VulkanDevice { Instance = new IntPtr(1L << 40), PhysicalDevice = one, Device = one };
      device.GetInstanceProcAddr = Marshal.GetFunctionPointerForDelegate(find);
      if (Context.BuildInfo.Contains("Vulkan: no"))
      {
        Refused<UnavailableException>("built without Vulkan", () => Context.Vulkan(device));
        return;
      }
      Refused<InvalidArgumentException>("device.queue is NULL", () => Context.Vulkan(device));
      device.Queue = device.Lock = one;
      Refused<InvalidArgumentException>("device.unlock is NULL", () => Context.Vulkan(device));
      device.Unlock = device.Release = one;
      Refused<InvalidArgumentException>("device.allocate is NULL", () => Context.Vulkan(device));
      device.Allocate = one;
      Refused<UnavailableException>("was not found: the Vulkan instance", () => Context.Vulkan(device));
      Assert.That(asked, Is.EqualTo(device.Instance));
      GC.KeepAlive(find);
    }

    [Test]
    public void MemoryIsGivenByItsAddress()
    {
      if (Context.DeviceCount(DeviceType.Vulkan) == 0)
      {
        return;
      }
      using (Context context = Context.Vulkan(null))
      using (var scaler = new GradScaler(context))
      using (var scale = new TensorList(context, Tensor.At(scaler.GetDeviceState().Scale, 1, DType.Fp32)))
      {
        Assert.That(scale.Diagnose()[0].Amax, Is.EqualTo(65536));
        var array = new float[1];
        var ones = new[] { Tensor.Of(array) };
        foreach (TestDelegate call in new TestDelegate[] {
                   () => new TensorList(context, ones), () => scale.SetTensors(ones), () => scaler.Scale(ones, ones),
                   () => Ops.Cast(context, ones, ones), () => scaler.Scale(array, array),
                   () => Ops.UnscaleCheck(context, array, 1),
                 })
        {
          Refused<InvalidArgumentException>("is host memory, but the context is a Vulkan device", call);
        }
      }
    }

    private static void Refused<T>(string part, TestDelegate call) where T : GradScalerException
    {
      Assert.That(Assert.Throws<T>(call).Message, Is.StringContaining(part));
    }
  }
}

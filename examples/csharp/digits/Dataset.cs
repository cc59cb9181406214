// SPDX-License-Identifier: Apache-2.0
// Images of 8 x 8 pixels, each a digit: reading, splitting and sampling them, with the random numbers of the example in
// C.
using System;
using System.IO;

namespace Digits
{
  /// <summary>splitmix64, and what is derived from it.</summary>
  internal sealed class RandomSource
  {
    private ulong state;

    internal RandomSource(ulong seed, ulong stream)
    {
      state = unchecked(seed * 0x9E3779B97F4A7C15UL + stream);
      state = Next();
    }

    private ulong Next()
    {
      unchecked
      {
        state += 0x9E3779B97F4A7C15UL;
        ulong z = state;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9UL;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBUL;
        return z ^ (z >> 31);
      }
    }

    private double Unit()
    {
      return ((Next() >> 11) + 0.5) / 9007199254740992.0;
    }

    internal int Below(int bound)
    {
      return (int)(Next() % (ulong)bound);
    }

    internal float Normal()
    {
      double radius = Math.Sqrt(-2.0 * Math.Log(Unit()));
      return (float)(radius * Math.Cos(2 * Math.PI * Unit()));
    }
  }

  internal sealed class Dataset
  {
    internal const int Pixels = 64;
    internal const int Classes = 10;

    internal readonly float[] Images;
    internal readonly int[] Labels;

    private Dataset(int count)
    {
      Images = new float[count * Pixels];
      Labels = new int[count];
    }

    internal static Dataset Read(string file)
    {
      string[] lines = File.ReadAllLines(file);
      var all = new Dataset(lines.Length);
      for (int i = 0; i < lines.Length; i++)
      {
        string[] numbers = lines[i].Split(',');
        if (numbers.Length != Pixels + 1)
        {
          throw new InvalidDataException(file + ":" + (i + 1) + ": not 64 pixels and a digit");
        }
        for (int j = 0; j < Pixels; j++)
        {
          all.Images[i * Pixels + j] = int.Parse(numbers[j]) / 16f;
        }
        all.Labels[i] = int.Parse(numbers[Pixels]);
      }
      return all;
    }

    private void Copy(int from, float[] images, int[] labels, int at)
    {
      Array.Copy(Images, from * Pixels, images, at * Pixels, Pixels);
      labels[at] = Labels[from];
    }

    /// <summary>Images to learn from, and images to test with.</summary>
    internal void Split(int trainCount, ulong seed, out Dataset train, out Dataset test)
    {
      var random = new RandomSource(seed, 0);
      var order = new int[Labels.Length];
      for (int i = 0; i < order.Length; i++)
      {
        int j = random.Below(i + 1);
        order[i] = order[j];
        order[j] = i;
      }
      train = new Dataset(trainCount);
      test = new Dataset(order.Length - trainCount);
      for (int i = 0; i < order.Length; i++)
      {
        Dataset to = i < trainCount ? train : test;
        Copy(order[i], to.Images, to.Labels, i < trainCount ? i : i - trainCount);
      }
    }

    internal void Batch(RandomSource random, int rows, float[] pixels, int[] labels)
    {
      for (int i = 0; i < rows; i++)
      {
        Copy(random.Below(Labels.Length), pixels, labels, i);
      }
    }
  }
}

# SPDX-License-Identifier: Apache-2.0
"""Parameter counts, tensor by tensor, of the models and synthetic sets that the benchmarks run over."""


def transformer(layers, width, vocabulary, positions=1024):
    """GPT-2's parameters."""
    block = [width, width, 3 * width * width, 3 * width, width * width, width, width, width,
             4 * width * width, 4 * width, 4 * width * width, width]
    return [vocabulary * width, positions * width] + block * layers + [width, width]


def llama_shard(layers=32, width=4096, hidden=11008, vocabulary=32000, ranks=8):
    """One of `ranks` equal parts of a Llama 7B."""
    block = [width * width] * 4 + [width * hidden] * 3 + [width * ranks] * 2
    return [n // ranks for n in [vocabulary * width] * 2 + block * layers + [width * ranks]]


def resnet50():
    """The 161 tensors of torchvision's ResNet-50."""
    sizes = [64 * 3 * 49, 64, 64]
    inputs = 64
    for blocks, planes in ((3, 64), (4, 128), (6, 256), (3, 512)):
        for block in range(blocks):
            for weights, channels in ((inputs * planes, planes), (planes * planes * 9, planes),
                                      (planes * planes * 4, planes * 4)):
                sizes += [weights, channels, channels]
            if block == 0:
                sizes += [inputs * planes * 4, planes * 4, planes * 4]
            inputs = planes * 4
    return sizes + [2048 * 1000, 1000]


def bert_large(layers=24, width=1024, vocabulary=30522):
    """The encoder of BERT-large with its pooler."""
    block = [width * width, width] * 4
    block += [width, width, 4 * width * width, 4 * width, 4 * width * width, width, width, width]
    return [vocabulary * width, 512 * width, 2 * width, width, width] + block * layers + [width * width, width]


def t5_base(layers=12, width=768, hidden=3072, vocabulary=32128):
    """T5-base: encoder and decoder, one embedding for both."""
    attention, feed_forward = [width * width] * 4 + [width], [width * hidden, hidden * width, width]
    encoder, decoder = attention + feed_forward, attention * 2 + feed_forward
    return [vocabulary * width] + (encoder * layers + [32 * 12, width]) + (decoder * layers + [32 * 12, width])


# Those of the goals come first.
SETS = {
    "ResNet-50": resnet50(),
    "1000 x 1024": [1024] * 1000,
    "10000 x 64": [64] * 10000,
    "network of 10^4": [64 * 100, 100, 100 * 32, 32, 32 * 10, 10],
    "GPT-2 XL": transformer(48, 1600, 50257),
    "Llama 7B, 1 of 8": llama_shard(),
    "GPT-2 124M": transformer(12, 768, 50257),
    "BERT-large": bert_large(),
    "T5-base": t5_base(),
    "10 x 16 Mi": [1 << 24] * 10,
    "200 x 1 Mi": [1 << 20] * 200,
}


if __name__ == "__main__":  # as gradscaler_gpu_bench reads them: name, tab, elements
    for name, counts in SETS.items():
        print(name, " ".join(map(str, counts)), sep="\t")

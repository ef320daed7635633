"""The masks stage: one threshold set, one shard (ils.md sections 5 to 7, but for texts and negatives).

Population: the images of the anatomy shard that the boxes stage did not exclude and that have a report line. All are
accepted: a study without a positive finding still gets negatives.

Read from a report line: ``study_id``, ``subject_id``, ``tuples``, ``other_tuples`` (of the section that was not used;
they only block), ``related`` (lesion types a neighbouring term of which stands). Read from a tuple: ``entity``,
``sentence_index``, ``presence``, ``certainty``, ``hedge``, ``location``, ``category``, ``labels``, ``lesion_type``,
``predicted_lesion_type``, and where present ``candidates`` (several lesion types), ``block`` (valid locations) and
``related``.

``output`` (HDF5, key ``mask_id``): ``mask`` packed (512, 512), the distinct masks of the findings and units tables.

``findings``, sorted by (study_id, image_id, finding): one row per positive tuple of the used section, of the seven
types or not (then ``target`` is null and ``reason`` tells why it only blocks).
    study_id, image_id, subject_id, split; finding (index of the tuple in the line's ``tuples``); entity;
    sentence_index; target; word ("opacity" if tentative, the target otherwise); certainty; hedge;
    reported, grounded (zone labels, in the order of ``labels.ZONE_LABELS``); named, named_reported (valid locations,
    in the order of Table 9); mask_id; area (px); productive_boxes (count); reason (null for a grounded mask, else
    ``no_lesion`` ``predicted_other`` ``weak_hedge`` ``no_labels`` ``no_anatomy`` ``no_productive_box``
    ``empty_after_refine`` ``no_grounded_label`` ``no_name`` ``no_heart``); share_outside (of the mask, outside its own
    labels); shared_with (findings whose masks overlap it, the heart left out); box_verdicts (one uint8 per kept box of
    the image, in the order of the boxes table: the bits of ``algorithm.VERDICTS``, 0 = productive).

``units``, sorted by (study_id, image_id, unit): the positive instructions before their text.
    study_id, image_id, unit (from 0 in each image: basics in the order of their findings, then globals in the order of
    ``labels.LESIONS``); kind ("basic" | "global"); target; word; certainty; sentence_index; location (valid locations
    in the order of Table 9, ["heart"] for cardiomegaly); grounded_location, reported_location (zone labels; ["heart"]
    for cardiomegaly); finding (list of tuple indexes: the finding itself, then those joined or merged); mask_id (null
    if dropped); area (px); inference (true: the basic gets a lesion-inference twin with the same mask, location,
    target, certainty); inference_mask_id (the twin's mask, null without one: it is ``mask_id`` or, where two twins
    have one text and one answer, the union of theirs, written at the first of them only);
    dropped (null, or the reason it makes no pair: ``ungrounded_sibling`` ``conflicting_answer``);
    inference_dropped (null, or why a basic of pneumonia, atelectasis or edema has no twin: ``several_candidates``
    ``several_types`` ``conflicting_answer`` ``same_text``). A pair is made of every row whose ``dropped`` is null.

``studies``, sorted by (study_id, image_id): one row per image.
    study_id, image_id, subject_id, split; ctr (float, null without heart or lungs; original pixels);
    reported (valid locations that overlap a zone mask reported by any positive finding); blocked (valid locations
    blocked in the sense of section 6); occupied (valid locations that hold a pixel of a lesion mask, the heart left
    out); empty (valid locations a negative may name); standing (list of {lesion, locations}: each type that is
    affirmed, hedged, a candidate or blocking *itself*, not through a kind under it, and the valid locations it meets
    or could be in; cardiomegaly with no location); related (lesion types a neighbouring term of which stands);
    lesion_blocked (list of {lesion, locations, anywhere, global_blocked}, all seven types in order, hierarchy applied
    if ``kinds`` is strict: locations that meet a finding of it or of a kind under it; whether one stands anywhere; and
    whether a global negative is forbidden by one, by a related term of it or of a kind under it, or, for opacity, by a
    location that is not empty). All location lists are in the order of Table 9.
"""

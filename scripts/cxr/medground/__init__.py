"""MedGround: expert masks become boxes, attributes, referring queries, verified triplets and a grounding dataset."""

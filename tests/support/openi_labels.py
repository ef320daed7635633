"""Labels of the headings that people assigned to the reports of Open-i."""


def mesh_labels(mesh: str) -> set[str]:
    """Return the labels of the headings that people assigned: the heading stands before the first slash."""
    found = set()
    for term in mesh.split(";"):
        head, *rest = (part.strip().lower() for part in term.split("/"))
        about = " ".join(rest)
        simple = {
            "cardiomegaly": "Cardiomegaly", "opacity": "Lung Opacity", "airspace disease": "Lung Opacity",
            "infiltrate": "Lung Opacity", "nodule": "Lung Lesion", "mass": "Lung Lesion", "pulmonary edema": "Edema",
            "consolidation": "Consolidation", "pneumonia": "Pneumonia", "pulmonary atelectasis": "Atelectasis",
            "pneumothorax": "Pneumothorax", "pleural effusion": "Pleural Effusion", "pleura": "Pleural Other",
            "fractures, bone": "Fracture",
        }  # fmt: skip
        found |= {simple[head]} if head in simple else set()
        found |= {"Pneumothorax", "Pleural Effusion"} if head == "hydropneumothorax" else set()
        if head in ("cardiac shadow", "heart") and "enlarged" in about:
            found.add("Cardiomegaly")
        if head == "mediastinum" and any(word in about for word in ("prominent", "enlarged", "wide")):
            found.add("Enlarged Cardiomediastinum")
        if head == "density" and "lung" in about:
            found.add("Lung Opacity")
        if head in ("cavitation", "cysts") and "lung" in about:
            found.add("Lung Lesion")
        if head == "thickening" and "pleura" in about:
            found.add("Pleural Other")
        devices = ("catheters, indwelling", "implanted medical device", "medical device", "tube, inserted", "stents")
        if head in (*devices, "surgical instruments", "sutures"):
            found.add("Support Devices")
    return found

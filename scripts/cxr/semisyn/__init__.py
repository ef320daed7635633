"""SemiSynCXR: findings put into healthy X-rays, and the proof whether they help a detector."""

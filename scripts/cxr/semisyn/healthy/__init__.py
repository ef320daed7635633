"""The healthy stage: selects frontal X-rays without a finding, into which SemiSynCXR puts findings."""

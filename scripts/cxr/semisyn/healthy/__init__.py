"""The healthy pool: frontal X-rays without a finding, into which SemiSynCXR puts findings."""

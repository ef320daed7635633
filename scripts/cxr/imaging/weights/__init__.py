"""The weights stage: downloads published weights of large nets and converts them to safetensors, once."""
